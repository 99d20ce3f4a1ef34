export const RICH: string;
export const HOSTILE: string;
export const PLAIN: string;
export function longText(): string;
