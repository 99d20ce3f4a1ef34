import {
  useEffect,
  useId,
  useRef,
  useState,
  type ComponentProps,
  type FormEvent,
  type ReactNode,
} from "react";
import { asRefusal, type Refusal } from "../account/refusal";
import { CopyButton } from "./CopyButton";
import { duration } from "./facts";
import { useCountdown } from "./useCountdown";

/** A form's sending: one at a time, with what went wrong. */
export interface Submit {
  isBusy: boolean;
  refusal: Refusal | null;
  run: (action: () => Promise<void>) => void;
}

export function useSubmit(): Submit {
  const [isBusy, setBusy] = useState(false);
  const [refusal, setRefusal] = useState<Refusal | null>(null);
  const run = (action: () => Promise<void>) => {
    if (isBusy) return;
    setBusy(true);
    setRefusal(null);
    action()
      .catch((error: unknown) => setRefusal(asRefusal(error)))
      .finally(() => setBusy(false));
  };
  return { isBusy, refusal, run };
}

interface FormProps {
  submit: Submit;
  label: string;
  /** Gets the form's fields by name, without those that are empty. */
  action: (fields: Record<string, string>) => Promise<void>;
  children: ReactNode;
  /** Beside the button. */
  extra?: ReactNode;
  isClearedAfter?: boolean;
}

export function Form({ submit, label, action, children, extra, isClearedAfter }: FormProps) {
  const left = useCountdown(submit.refusal?.retryAt ?? null);
  const onSubmit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = event.currentTarget;
    const fields: Record<string, string> = {};
    for (const [name, value] of new FormData(form)) {
      if (typeof value === "string" && value !== "") fields[name] = value;
    }
    submit.run(async () => {
      await action(fields);
      if (isClearedAfter) form.reset();
    });
  };
  return (
    <form className="form" onSubmit={onSubmit}>
      {children}
      <Problem refusal={submit.refusal} />
      <div className="form-actions">
        <button type="submit" className="solid" disabled={submit.isBusy || left > 0}>
          {left > 0 ? `Wait ${duration(left)}` : label}
        </button>
        {extra}
      </div>
    </form>
  );
}

/** What went wrong, read out at once. */
export function Problem({ refusal }: { refusal: Refusal | null }) {
  return (
    <p className="form-problem" role="alert" hidden={refusal === null}>
      {refusal?.message}
    </p>
  );
}

interface FieldProps extends ComponentProps<"input"> {
  label: string;
  hint?: string;
}

export function Field({ label, hint, ...input }: FieldProps) {
  const id = useId();
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      <input id={id} aria-describedby={hint ? `${id}-hint` : undefined} autoCapitalize="none" {...input} />
      {hint && (
        <p id={`${id}-hint`} className="muted small">
          {hint}
        </p>
      )}
    </div>
  );
}

interface SelectProps extends ComponentProps<"select"> {
  label: string;
  options: readonly (readonly [value: string, text: string])[];
}

export function Select({ label, options, ...select }: SelectProps) {
  const id = useId();
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      <select id={id} {...select}>
        {options.map(([value, text]) => (
          <option key={value} value={value}>
            {text}
          </option>
        ))}
      </select>
    </div>
  );
}

/** A button for what can't be undone: asks once more, in place. */
export function ConfirmButton(props: {
  label: string;
  question: string;
  isBusy: boolean;
  onConfirm: () => void;
}) {
  const { label, question, isBusy, onConfirm } = props;
  const [isAsking, setAsking] = useState(false);
  const first = useRef<HTMLButtonElement>(null);
  const cancel = () => {
    setAsking(false);
    requestAnimationFrame(() => first.current?.focus());
  };
  if (!isAsking) {
    return (
      <button ref={first} type="button" className="plain" disabled={isBusy} onClick={() => setAsking(true)}>
        {label}
      </button>
    );
  }
  return (
    <span className="confirm" role="group" aria-label={question}>
      <span>{question}</span>
      <button type="button" className="plain" onClick={cancel}>
        Cancel
      </button>
      <button
        type="button"
        className="plain danger"
        autoFocus
        disabled={isBusy}
        onClick={() => {
          setAsking(false);
          onConfirm();
        }}
      >
        {label}
      </button>
    </span>
  );
}

/** A secret that can't be read again; it takes the focus, so that nobody overlooks it. */
export function Secret({ label, value, onDone }: { label: string; value: string; onDone: () => void }) {
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => box.current?.focus(), []);
  return (
    <div ref={box} className="secret" role="group" aria-label={label} tabIndex={-1}>
      <p>
        <strong>{label}</strong> It is shown only now: copy it.
      </p>
      <div className="secret-value">
        <code>{value}</code>
        <CopyButton text={value} label={`Copy: ${label}`} />
      </div>
      <button type="button" className="plain" onClick={onDone}>
        Done
      </button>
    </div>
  );
}
