import { useState } from "react";

export type Theme = "system" | "light" | "dark";

const KEY = "motet.theme";
const NEXT: Record<Theme, Theme> = { system: "light", light: "dark", dark: "system" };

/** The remembered theme and what moves it on. `public/theme.js` applies it before the first paint. */
export function useTheme(storage: Storage): { theme: Theme; next: Theme; advance: () => void } {
  const [theme, setTheme] = useState<Theme>(() => remembered(storage));
  const next = NEXT[theme];
  const advance = () => {
    setTheme(next);
    apply(next);
    try {
      storage.setItem(KEY, next);
    } catch {
      // Not remembered, but shown.
    }
  };
  return { theme, next, advance };
}

function remembered(storage: Storage): Theme {
  try {
    const value = storage.getItem(KEY);
    return value === "light" || value === "dark" ? value : "system";
  } catch {
    return "system";
  }
}

function apply(theme: Theme): void {
  const root = document.documentElement;
  if (theme === "system") delete root.dataset.theme;
  else root.dataset.theme = theme;
}
