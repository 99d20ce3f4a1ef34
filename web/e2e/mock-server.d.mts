export interface Mock {
    url: string;
    state: {
        running: number;
        loading: number;
        isNext: boolean;
        requests: { model: string; messages: { role: string; content: string }[] }[];
    };
    close(): Promise<void>;
}
export function startMock(options?: { port?: number; loading?: number; hasChoice?: boolean }): Promise<Mock>;
