import type { Model } from "../api/client";
import { AUTO, effective, type ModelState, type PickStore } from "../chat/model";
import { useStore } from "./useStore";

interface Props {
  model: ModelState & { kind: "ready" };
  pick: PickStore;
}

/** Which of several models answers; the next message goes to it. */
export function ModelPicker({ model, pick }: Props) {
  const value = effective(useStore(pick), model);
  const chosen = model.models.find(({ id }) => id === value);
  return (
    <select
      className="model picker"
      data-kind="ready"
      aria-label="Model"
      title={chosen ? described(chosen) : "The server chooses for each message"}
      value={value}
      onChange={(event) => pick.dispatch(event.target.value)}
    >
      <option value={AUTO}>Automatic</option>
      {model.models.map((it) => (
        <option key={it.id} value={it.id}>
          {described(it)}
        </option>
      ))}
    </select>
  );
}

function described({ id, description, roles }: Model): string {
  const about = [description, roles.join(", ")].filter((it) => it !== "").join("; ");
  return about === "" ? id : `${id} (${about})`;
}
