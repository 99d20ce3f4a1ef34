/** Line icons on a 24-unit grid, drawn in the text's colour. */
const PATHS = {
  send: "M12 19V5M5.5 11.5 12 5l6.5 6.5",
  stop: "M7.5 6.500h9a1 1 0 0 1 1 1v9a1 1 0 0 1-1 1h-9a1 1 0 0 1-1-1v-9a1 1 0 0 1 1-1z",
  plus: "M12 5v14M5 12h14",
  copy: "M9 9h9.500a1.5 1.5 0 0 1 1.5 1.500V19a1.5 1.5 0 0 1-1.5 1.500H10.500A1.5 1.5 0 0 1 9 19zM15 5.500A1.5 1.5 0 0 0 13.5 4H5.500A1.5 1.5 0 0 0 4 5.500v8A1.5 1.5 0 0 0 5.5 15H6",
  check: "m5 12.5 4.5 4.500L19 7.5",
  again:
    "M20 11a8 8 0 0 0-14.5-3.500L4 9.500M4 4.500v5h5M4 13a8 8 0 0 0 14.5 3.500L20 14.500M20 19.500v-5h-5",
  edit: "M4 20h4L19.5 8.500a2.1 2.1 0 0 0-3-3L5 17zM14.5 7.500l3 3",
  down: "M12 5v14M5.5 12.5 12 19l6.5-6.5",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 2.500v2M12 19.500v2M2.5 12h2M19.5 12h2M5.3 5.300l1.4 1.400M17.3 17.300l1.4 1.400M5.3 18.700l1.4-1.400M17.3 6.700l1.4-1.4",
  moon: "M20 14.500A8.5 8.5 0 0 1 9.5 4a8.5 8.5 0 1 0 10.5 10.500z",
  screen:
    "M4.5 5h15A1.5 1.5 0 0 1 21 6.500v9a1.5 1.5 0 0 1-1.5 1.500h-15A1.5 1.5 0 0 1 3 15.500v-9A1.5 1.5 0 0 1 4.5 5zM9 20.500h6M12 17v3.5",
  user: "M12 4a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM4.5 20a7.5 7.5 0 0 1 15 0",
  close: "M6 6l12 12M18 6 6 18",
  alert: "M12 8v5M12 16.500v.01M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18z",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg className="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  );
}
