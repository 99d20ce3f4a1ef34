import { memo } from "react";
import type { ModelState, PickStore } from "../chat/model";
import { Icon, type IconName } from "./Icon";
import { ModelPicker } from "./ModelPicker";
import { useTheme, type Theme } from "./theme";

const THEME_ICON: Record<Theme, IconName> = { system: "screen", light: "sun", dark: "moon" };

interface Props {
  model: ModelState;
  pick: PickStore;
  storage: Storage;
  canClear: boolean;
  onClear: () => void;
  /** Who is signed in; null where there are no accounts. */
  userName: string | null;
  onAccount: () => void;
}

export const Header = memo(function Header(props: Props) {
  const { model, pick, storage, canClear, onClear, userName, onAccount } = props;
  const { theme, next, advance } = useTheme(storage);
  const themeLabel = `Theme: ${theme}. Change to ${next}`;
  return (
    <header className="top">
      <div className="brand">
        <img src="/favicon.svg" alt="" width="26" height="26" />
        <h1>Motet</h1>
        {model.kind === "ready" && model.models.length > 1 ? (
          <ModelPicker model={model} pick={pick} />
        ) : (
          <span className="model" data-kind={model.kind} title={modelText(model)}>
            {modelText(model)}
          </span>
        )}
      </div>
      <div className="top-actions">
        <button
          type="button"
          className="quiet"
          onClick={onClear}
          disabled={!canClear}
          aria-label="New chat"
          title="New chat (Ctrl/⌘ + Shift + O)"
        >
          <Icon name="plus" />
          <span className="wide-only">New chat</span>
        </button>
        <button type="button" className="quiet" onClick={advance} aria-label={themeLabel} title={themeLabel}>
          <Icon name={THEME_ICON[theme]} />
        </button>
        {userName !== null && (
          <button
            type="button"
            className="quiet"
            onClick={onAccount}
            aria-haspopup="dialog"
            aria-label={`Account: ${userName}`}
            title={`Account: ${userName}`}
          >
            <Icon name="user" />
          </button>
        )}
      </div>
    </header>
  );
});

function modelText(model: ModelState): string {
  switch (model.kind) {
    case "asking":
      return "";
    case "loading":
      return "loading the model…";
    case "ready":
      return model.id;
    case "unknown":
      return model.why;
  }
}
