import type { Account } from "../../account/account";
import { Field, Form, useSubmit } from "../forms";

/** The first account of a new server. */
export function Setup({ account, needsToken }: { account: Account; needsToken: boolean }) {
  const submit = useSubmit();
  return (
    <>
      <h1>Make the first account</h1>
      <p className="muted">It owns this server: it can add other people, and see what they use.</p>
      <Form
        submit={submit}
        label="Make account"
        action={({ login = "", password = "", display_name, token }) =>
          account.setUp({ login, password, display_name, token })
        }
        extra={
          submit.refusal?.code === "setup_done" && (
            <button type="button" className="plain" onClick={() => void account.ask()}>
              Go to sign-in
            </button>
          )
        }
      >
        <Field label="Login" name="login" autoComplete="username" required />
        <Field
          label="Your name"
          name="display_name"
          autoComplete="name"
          autoCapitalize="words"
          hint="May be left out."
        />
        <Field
          label="Password"
          name="password"
          type="password"
          autoComplete="new-password"
          minLength={8}
          required
          hint="8 characters or more."
        />
        {needsToken && (
          <Field
            label="One-time token"
            name="token"
            autoComplete="off"
            spellCheck={false}
            required
            hint="The server printed it when it started."
          />
        )}
      </Form>
    </>
  );
}
