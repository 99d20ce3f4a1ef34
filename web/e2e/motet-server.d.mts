export interface Motet {
    url: string;
    close(): Promise<void>;
}
export const isBuilt: boolean;
export function startMotet(): Promise<Motet>;
