import { apiError, retryAfter } from "../api/failure";

interface Told {
  code: string;
  message: string;
  status?: number;
  /** When the server takes the next try, in ms since 1970. */
  retryAt?: number;
}

/** A request about accounts that was not answered. `message` is for the reader. */
export class Refusal extends Error {
  readonly code: string;
  readonly status: number;
  readonly retryAt: number | null;

  constructor({ code, message, status = 0, retryAt }: Told) {
    super(message);
    this.name = "Refusal";
    this.code = code;
    this.status = status;
    this.retryAt = retryAt ?? null;
  }
}

/** The page's own words where the server's are for programs. */
const WORDS: Record<string, string> = {
  wrong_login: "The login or the password is wrong.",
  wrong_password: "The current password is wrong.",
  setup_done: "The first account was made already. Sign in instead.",
  setup_token_required: "The one-time token is wrong. The server prints it when it starts without accounts.",
  login_taken: "Somebody has this login already.",
  last_owner: "Somebody has to stay owner.",
  rate_limit_exceeded: "Too many tries.",
  not_signed_in: "You are signed out. Sign in again.",
};

export async function refusalOf(response: Response, now = Date.now()): Promise<Refusal> {
  const { status, headers } = response;
  const error = apiError(await response.json().catch(() => null));
  const code = error?.code ?? "";
  const wait = retryAfter(headers);
  const message = WORDS[code] ?? sentence(error?.message || `The server answered ${status}.`);
  return new Refusal({ code, message, status, retryAt: wait === undefined ? undefined : now + wait });
}

/** What was thrown as a refusal, for components that show it. */
export function asRefusal(error: unknown): Refusal {
  if (error instanceof Refusal) return error;
  return new Refusal({ code: "unknown", message: "Something went wrong. Try again." });
}

/** The server's messages begin small and have no full stop. */
function sentence(text: string): string {
  const end = /[.!?…]$/.test(text) ? "" : ".";
  return text.charAt(0).toUpperCase() + text.slice(1) + end;
}
