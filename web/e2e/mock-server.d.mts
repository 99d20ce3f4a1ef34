export interface Mock {
    url: string;
    state: {
        running: number;
        loading: number;
        requests: { messages: { role: string; content: string }[] }[];
    };
    close(): Promise<void>;
}
export function startMock(options?: { port?: number; loading?: number }): Promise<Mock>;
