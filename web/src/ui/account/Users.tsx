import { useState } from "react";
import type { NewUser, Requests, WithPassword } from "../../account/requests";
import type { Role, User } from "../../account/state";
import { Field, Form, Secret, Select, useSubmit } from "../forms";
import { announce } from "../status";
import { ListState, More } from "./ListState";
import { UserEntry } from "./UserEntry";
import { rolesFor } from "./roles";
import { useLoad } from "./useLoad";

/** The organisation's people, for administrators. */
export function Users({ me, api }: { me: User; api: Requests }) {
  const users = useLoad(api.users);
  const [told, setTold] = useState<{ login: string; password: string } | null>(null);
  /** Takes the user as the server has it now, and shows a password that it made. */
  const take = ({ password, ...user }: WithPassword) => {
    users.change((data) =>
      data.some(({ id }) => id === user.id)
        ? data.map((it) => (it.id === user.id ? user : it))
        : [...data, user].sort((a, b) => a.login.localeCompare(b.login)),
    );
    if (password) setTold({ login: user.login, password });
  };
  const tiers = [...new Set(users.data?.map(({ tier }) => tier))];
  return (
    <>
      <h3>New user</h3>
      {told ? (
        <Secret
          label={`The password of “${told.login}”.`}
          value={told.password}
          onDone={() => setTold(null)}
        />
      ) : (
        <NewUserForm
          me={me}
          create={async (user) => {
            take(await api.createUser(user));
            announce("User made");
          }}
        />
      )}
      <h3>Users</h3>
      <ListState list={users} empty="None." />
      <datalist id="tiers">
        {tiers.map((tier) => (
          <option key={tier} value={tier} />
        ))}
      </datalist>
      <ul className="entries">
        {users.data?.map((user) => (
          <UserEntry
            key={user.id}
            user={user}
            me={me}
            api={api}
            onChanged={take}
            onRemoved={() => users.change((data) => data.filter(({ id }) => id !== user.id))}
          />
        ))}
      </ul>
      <More list={users} />
    </>
  );
}

function NewUserForm({ me, create }: { me: User; create: (user: NewUser) => Promise<void> }) {
  const submit = useSubmit();
  return (
    <Form
      submit={submit}
      label="Make user"
      action={({ login = "", display_name, role, tier }) =>
        create({ login, display_name, role: role as Role, tier })
      }
    >
      <div className="field-row">
        <Field label="Login" name="login" autoComplete="off" spellCheck={false} required />
        <Field label="Name" name="display_name" autoComplete="off" autoCapitalize="words" />
      </div>
      <div className="field-row">
        <Select label="Role" name="role" options={rolesFor(me)} />
        <Field label="Tier" name="tier" list="tiers" autoComplete="off" placeholder="the first one" />
      </div>
      <p className="muted small">A password is made, and shown to you once.</p>
    </Form>
  );
}
