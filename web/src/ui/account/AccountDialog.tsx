import { useEffect, useMemo, useRef, useState } from "react";
import { requests } from "../../account/requests";
import type { User } from "../../account/state";
import { Icon } from "../Icon";
import { useAccount } from "../context";
import { Devices } from "./Devices";
import { Keys } from "./Keys";
import { Profile } from "./Profile";
import { UsageReport } from "./UsageReport";
import { Users } from "./Users";

const SECTIONS = ["Profile", "Devices", "API keys", "Usage", "Users"] as const;
type Section = (typeof SECTIONS)[number];

export function AccountDialog({ me, onClose }: { me: User; onClose: () => void }) {
  const account = useAccount();
  const api = useMemo(() => requests(account), [account]);
  const dialog = useRef<HTMLDialogElement>(null);
  const [section, setSection] = useState<Section>("Profile");
  const isAdmin = me.role !== "member";
  useEffect(() => {
    const element = dialog.current;
    if (element && !element.open) element.showModal();
  }, []);
  return (
    <dialog
      ref={dialog}
      className="account"
      aria-labelledby="account-title"
      onClose={onClose}
      // Esc closes the dialog; it must not stop the reply behind it.
      onKeyDown={(event) => event.stopPropagation()}
    >
      <header className="account-top">
        <h2 id="account-title">Account</h2>
        <button
          type="button"
          className="quiet"
          aria-label="Close"
          title="Close (Esc)"
          onClick={() => dialog.current?.close()}
        >
          <Icon name="close" />
        </button>
      </header>
      <nav className="account-nav" aria-label="Account">
        {SECTIONS.filter((name) => isAdmin || name !== "Users").map((name) => (
          <button
            key={name}
            type="button"
            className="quiet"
            aria-current={name === section ? "page" : undefined}
            onClick={() => setSection(name)}
          >
            {name}
          </button>
        ))}
      </nav>
      <section key={section} className="account-body" aria-label={section}>
        {section === "Profile" && <Profile me={me} api={api} />}
        {section === "Devices" && <Devices api={api} />}
        {section === "API keys" && <Keys api={api} isAdmin={isAdmin} />}
        {section === "Usage" && <UsageReport api={api} />}
        {section === "Users" && <Users me={me} api={api} />}
      </section>
    </dialog>
  );
}
