import type { Requests, UserChange, WithPassword } from "../../account/requests";
import type { User } from "../../account/state";
import { ConfirmButton, Field, Form, Problem, Select, useSubmit } from "../forms";
import { announce } from "../status";
import { rolesFor } from "./roles";

interface Props {
  user: User;
  me: User;
  api: Requests;
  onChanged: (user: WithPassword) => void;
  onRemoved: () => void;
}

export function UserEntry(props: Props) {
  const { user, me } = props;
  const canChange = me.role === "owner" || user.role === "member";
  const isMe = user.id === me.id;
  return (
    <li className="entry" data-off={user.is_disabled}>
      <div>
        <strong>{user.display_name}</strong>
        {isMe && <span className="tag">you</span>}
        {user.is_disabled && <span className="tag">disabled</span>}
        <p className="muted small">
          {user.login}, {user.role}, tier {user.tier}
        </p>
      </div>
      {canChange && (
        <details className="entry-more">
          <summary aria-label={`Change ${user.login}`}>Change</summary>
          <Change {...props} />
          {!isMe && <Actions {...props} />}
        </details>
      )}
    </li>
  );
}

function Change({ user, me, api, onChanged }: Props) {
  const submit = useSubmit();
  const isMe = user.id === me.id;
  return (
    <Form
      submit={submit}
      label="Save"
      action={async ({ display_name, role, tier, is_disabled }) => {
        const change: UserChange = { display_name, tier };
        if (!isMe) Object.assign(change, { role, is_disabled: is_disabled !== undefined });
        onChanged(await api.changeUser(user.id, change));
        announce(`${user.login} is changed`);
      }}
    >
      <div className="field-row">
        <Field
          label="Name"
          name="display_name"
          defaultValue={user.display_name}
          autoComplete="off"
          required
        />
        <Field label="Tier" name="tier" list="tiers" defaultValue={user.tier} autoComplete="off" required />
      </div>
      {!isMe && (
        <div className="field-row">
          <Select label="Role" name="role" defaultValue={user.role} options={rolesFor(me)} />
          <label className="check">
            <input type="checkbox" name="is_disabled" defaultChecked={user.is_disabled} />
            Disabled: can’t sign in, and keys don’t work
          </label>
        </div>
      )}
    </Form>
  );
}

function Actions({ user, api, onChanged, onRemoved }: Props) {
  const submit = useSubmit();
  return (
    <>
      <Problem refusal={submit.refusal} />
      <div className="form-actions">
        <ConfirmButton
          label="Reset password"
          question={`Give “${user.login}” a new password?`}
          isBusy={submit.isBusy}
          onConfirm={() =>
            submit.run(async () => onChanged(await api.changeUser(user.id, { reset_password: true })))
          }
        />
        <ConfirmButton
          label="Remove"
          question={`Remove “${user.login}” for good?`}
          isBusy={submit.isBusy}
          onConfirm={() =>
            submit.run(async () => {
              await api.removeUser(user.id);
              announce(`${user.login} is removed`);
              onRemoved();
            })
          }
        />
      </div>
    </>
  );
}
