import { useState } from "react";
import { Refusal } from "../../account/refusal";
import type { Key, NewKey, Requests } from "../../account/requests";
import { ConfirmButton, Field, Form, Problem, Secret, Select, useSubmit } from "../forms";
import { announce } from "../status";
import { ListState, More } from "./ListState";
import { date, dateTime } from "./format";
import { useLoad } from "./useLoad";

const SCOPES = [
  ["chat", "Chat and completions"],
  ["embeddings", "Embeddings"],
  ["batches", "Files and batches"],
  ["usage", "Own usage"],
] as const;

const DAY = 86_400;
const EXPIRIES = [
  ["", "Never"],
  ["30", "In 30 days"],
  ["90", "In 90 days"],
  ["365", "In a year"],
] as const;

/** Keys for programs. */
export function Keys({ api, isAdmin }: { api: Requests; isAdmin: boolean }) {
  const keys = useLoad(api.keys);
  const [openedAt] = useState(() => Date.now());
  const [made, setMade] = useState<{ name: string; secret: string } | null>(null);
  const submit = useSubmit();
  const create = async (wanted: NewKey) => {
    const { key: secret, ...key } = await api.createKey(wanted);
    keys.change((data) => [key, ...data]);
    setMade({ name: key.name, secret });
    announce("Key made");
  };
  const revoke = (id: string) =>
    submit.run(async () => {
      await api.revokeKey(id);
      const now = Date.now() / 1000;
      keys.change((data) => data.map((key) => (key.id === id ? { ...key, revoked_at: now } : key)));
      announce("Key revoked");
    });
  return (
    <>
      <h3>New key</h3>
      {made ? (
        <Secret label={`The key “${made.name}”.`} value={made.secret} onDone={() => setMade(null)} />
      ) : (
        <NewKeyForm isAdmin={isAdmin} create={create} />
      )}
      <h3>Your keys</h3>
      <Problem refusal={submit.refusal} />
      <ListState list={keys} empty="None yet. A program sends one as “Authorization: Bearer KEY”." />
      <ul className="entries">
        {keys.data?.map((key) => (
          <KeyEntry
            key={key.id}
            it={key}
            openedAt={openedAt}
            isBusy={submit.isBusy}
            onRevoke={() => revoke(key.id)}
          />
        ))}
      </ul>
      <More list={keys} />
    </>
  );
}

/** That many days from now, in Unix seconds. */
function inDays(days: number): number {
  return Math.floor(Date.now() / 1000) + days * DAY;
}

function NewKeyForm({ isAdmin, create }: { isAdmin: boolean; create: (key: NewKey) => Promise<void> }) {
  const submit = useSubmit();
  const scopes = isAdmin ? ([...SCOPES, ["admin", "Everything of administrators"]] as const) : SCOPES;
  const action = async (fields: Record<string, string>) => {
    const chosen = scopes.map(([scope]) => scope).filter((scope) => `scope-${scope}` in fields);
    if (chosen.length === 0) throw new Refusal({ code: "none", message: "Choose what the key may do." });
    const expires_at = fields.days ? inDays(Number(fields.days)) : undefined;
    await create({ name: fields.name ?? "", scopes: chosen, expires_at });
  };
  return (
    <Form submit={submit} label="Make key" action={action}>
      <div className="field-row">
        <Field label="Name" name="name" placeholder="laptop" autoComplete="off" required />
        <Select label="Expires" name="days" options={EXPIRIES} />
      </div>
      <fieldset className="checks">
        <legend>It may be used for</legend>
        {scopes.map(([scope, text]) => (
          <label key={scope}>
            <input type="checkbox" name={`scope-${scope}`} defaultChecked={scope !== "admin"} />
            {text}
          </label>
        ))}
      </fieldset>
    </Form>
  );
}

interface EntryProps {
  it: Key;
  /** When the list was opened, in ms since 1970. */
  openedAt: number;
  isBusy: boolean;
  onRevoke: () => void;
}

function KeyEntry({ it, openedAt, isBusy, onRevoke }: EntryProps) {
  const isRevoked = it.revoked_at !== null;
  const isExpired = it.expires_at !== null && it.expires_at * 1000 < openedAt;
  return (
    <li className="entry" data-off={isRevoked || isExpired}>
      <div>
        <strong>{it.name}</strong>
        {isRevoked ? <span className="tag">revoked</span> : isExpired && <span className="tag">expired</span>}
        <p className="muted small">
          <code>{it.prefix}…</code> {it.scopes.join(", ")}
        </p>
        <p className="muted small">
          Made {date(it.created_at)},{" "}
          {it.last_used_at === null ? "not used yet" : `last used ${dateTime(it.last_used_at)}`}
          {it.expires_at !== null && `, expires ${date(it.expires_at)}`}
        </p>
      </div>
      {!isRevoked && (
        <ConfirmButton
          label="Revoke"
          question={`Revoke “${it.name}”?`}
          isBusy={isBusy}
          onConfirm={onRevoke}
        />
      )}
    </li>
  );
}
