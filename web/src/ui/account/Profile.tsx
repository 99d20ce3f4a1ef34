import { useState } from "react";
import type { Requests } from "../../account/requests";
import { Refusal } from "../../account/refusal";
import type { User } from "../../account/state";
import { useAccount } from "../context";
import { Field, Form, Problem, useSubmit } from "../forms";
import { announce } from "../status";

export function Profile({ me, api }: { me: User; api: Requests }) {
  const account = useAccount();
  const leaving = useSubmit();
  return (
    <>
      <div className="account-line">
        <p>
          Signed in as <strong>{me.login}</strong>
          <br />
          <span className="muted small">
            {me.role}, tier {me.tier}
          </span>
        </p>
        <button
          type="button"
          className="plain"
          disabled={leaving.isBusy}
          onClick={() => leaving.run(() => account.signOut())}
        >
          Sign out
        </button>
      </div>
      <Problem refusal={leaving.refusal} />
      <Name me={me} api={api} />
      <Password me={me} api={api} />
    </>
  );
}

function Name({ me, api }: { me: User; api: Requests }) {
  const account = useAccount();
  const submit = useSubmit();
  const [isDone, setDone] = useState(false);
  return (
    <>
      <h3>Your name</h3>
      <Form
        submit={submit}
        label="Save name"
        extra={isDone && <Saved />}
        action={async ({ display_name = "" }) => {
          setDone(false);
          account.update(await api.rename(display_name));
          announce("Name saved");
          setDone(true);
        }}
      >
        <Field
          label="Display name"
          name="display_name"
          defaultValue={me.display_name}
          autoComplete="name"
          autoCapitalize="words"
          required
        />
      </Form>
    </>
  );
}

function Password({ me, api }: { me: User; api: Requests }) {
  const submit = useSubmit();
  const [isDone, setDone] = useState(false);
  return (
    <>
      <h3>Password</h3>
      <Form
        submit={submit}
        label="Change password"
        isClearedAfter
        extra={isDone && <Saved />}
        action={async ({ old = "", fresh = "", again = "" }) => {
          setDone(false);
          if (fresh !== again) throw new Refusal({ code: "differs", message: "The new passwords differ." });
          await api.changePassword(old, fresh);
          announce("Password changed. You are signed out on all other devices");
          setDone(true);
        }}
      >
        {/* Password managers look for the account's name beside the password. */}
        <input type="text" name="login" autoComplete="username" defaultValue={me.login} readOnly hidden />
        <Field label="Current password" name="old" type="password" autoComplete="current-password" required />
        <Field
          label="New password"
          name="fresh"
          type="password"
          autoComplete="new-password"
          minLength={8}
          required
          hint="8 characters or more. You are then signed out on all other devices."
        />
        <Field
          label="New password again"
          name="again"
          type="password"
          autoComplete="new-password"
          minLength={8}
          required
        />
      </Form>
    </>
  );
}

function Saved() {
  return <span className="muted small">Saved.</span>;
}
