import type { Account } from "../../account/account";
import type { Provider } from "../../account/state";
import { Field, Form, useSubmit } from "../forms";

interface Props {
  account: Account;
  providers: readonly Provider[];
  /** Who was signed in here is asked again; what they wrote is still there. */
  hadSession: boolean;
}

export function SignIn({ account, providers, hadSession }: Props) {
  const submit = useSubmit();
  return (
    <>
      <h1>Sign in</h1>
      {hadSession && (
        <p className="muted">Your session has ended. Your conversation and your draft are kept.</p>
      )}
      <Form
        submit={submit}
        label="Sign in"
        action={({ login = "", password = "" }) => account.signIn(login, password)}
      >
        <Field label="Login" name="login" autoComplete="username" spellCheck={false} required />
        <Field label="Password" name="password" type="password" autoComplete="current-password" required />
      </Form>
      {providers.length > 0 && (
        <ul className="providers" aria-label="Other ways to sign in">
          {providers.filter(isOwnPath).map(({ name, title, url }) => (
            <li key={name}>
              <a className="plain" href={`${url}?return_to=/`}>
                Sign in with {title ?? name}
              </a>
            </li>
          ))}
        </ul>
      )}
    </>
  );
}

/** A path of this server, and no address of another: `//host` is one. */
function isOwnPath({ url }: Provider): boolean {
  return /^\/(?![/\\])/.test(url);
}
