import { memo } from "react";
import type { ModelState } from "../chat/model";
import { Icon, type IconName } from "./Icon";
import { useTheme, type Theme } from "./theme";

const THEME_ICON: Record<Theme, IconName> = { system: "screen", light: "sun", dark: "moon" };

interface Props {
  model: ModelState;
  storage: Storage;
  canClear: boolean;
  onClear: () => void;
}

export const Header = memo(function Header({ model, storage, canClear, onClear }: Props) {
  const { theme, next, advance } = useTheme(storage);
  const themeLabel = `Theme: ${theme}. Change to ${next}`;
  return (
    <header className="top">
      <div className="brand">
        <img src="/favicon.svg" alt="" width="26" height="26" />
        <h1>Motet</h1>
        <span className="model" data-kind={model.kind} title={modelText(model)}>
          {modelText(model)}
        </span>
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
