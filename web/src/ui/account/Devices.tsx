import type { Requests } from "../../account/requests";
import { useAccount } from "../context";
import { ConfirmButton, Problem, useSubmit } from "../forms";
import { announce } from "../status";
import { ListState } from "./ListState";
import { dateTime, deviceName } from "./format";
import { useLoad } from "./useLoad";

/** Where the user is signed in. */
export function Devices({ api }: { api: Requests }) {
  const account = useAccount();
  const devices = useLoad(api.devices);
  const submit = useSubmit();
  const end = (id: string) =>
    submit.run(async () => {
      await api.endDevice(id);
      devices.change((data) => data.filter((device) => device.id !== id));
      announce("Signed out there");
    });
  const endOthers = () =>
    submit.run(async () => {
      await api.endOtherDevices();
      devices.change((data) => data.filter((device) => device.is_current));
      announce("Signed out everywhere else");
    });
  const list = devices.data ?? [];
  return (
    <>
      <h3>Where you are signed in</h3>
      <Problem refusal={submit.refusal} />
      <ListState list={devices} empty="Nowhere." />
      <ul className="entries">
        {list.map((device) => (
          <li key={device.id} className="entry">
            <div>
              <strong title={device.user_agent}>{deviceName(device.user_agent)}</strong>
              {device.is_current && <span className="tag">this device</span>}
              <p className="muted small">
                {device.address}, last seen {dateTime(device.seen_at)}
              </p>
            </div>
            <button
              type="button"
              className="plain"
              aria-label={device.is_current ? "Sign out here" : `Sign out ${deviceName(device.user_agent)}`}
              disabled={submit.isBusy}
              onClick={() => (device.is_current ? submit.run(() => account.signOut()) : end(device.id))}
            >
              Sign out
            </button>
          </li>
        ))}
      </ul>
      {list.length > 1 && (
        <ConfirmButton
          label="Sign out all others"
          question="Sign out everywhere but here?"
          isBusy={submit.isBusy}
          onConfirm={endOthers}
        />
      )}
    </>
  );
}
