import type { Requests, UsageDay } from "../../account/requests";
import { ListState } from "./ListState";
import { amount } from "./format";
import { useLoad } from "./useLoad";

/** What the user's requests came to, day by day. */
export function UsageReport({ api }: { api: Requests }) {
  const usage = useLoad(api.usage);
  const days = [...(usage.data ?? [])].sort((a, b) => b.id.localeCompare(a.id));
  return (
    <>
      <h3>Your last 30 days</h3>
      <ListState list={usage} empty="Nothing was used yet." />
      {days.length > 0 && <Days days={days} />}
    </>
  );
}

function Days({ days }: { days: readonly UsageDay[] }) {
  const most = Math.max(1, ...days.map(tokens));
  const hasCost = days.some((day) => day.cost_micros > 0);
  const sum = (of: (day: UsageDay) => number) => days.reduce((all, day) => all + of(day), 0);
  return (
    <div className="table-frame" tabIndex={0} role="region" aria-label="Usage by day">
      <table className="usage">
        <thead>
          <tr>
            <th scope="col">Day (UTC)</th>
            <th scope="col">Requests</th>
            <th scope="col">Prompt tokens</th>
            <th scope="col">Reply tokens</th>
            {hasCost && <th scope="col">Cost</th>}
            <td />
          </tr>
        </thead>
        <tbody>
          {days.map((day) => (
            <tr key={day.id}>
              <th scope="row">{day.id}</th>
              <td>{count(day.requests)}</td>
              <td>{count(day.prompt_tokens)}</td>
              <td>{count(day.output_tokens)}</td>
              {hasCost && <td>{amount(day.cost_micros)}</td>}
              <td className="bar-cell" aria-hidden="true">
                <div className="bar" style={{ width: `${(100 * tokens(day)) / most}%` }} />
              </td>
            </tr>
          ))}
        </tbody>
        <tfoot>
          <tr>
            <th scope="row">Together</th>
            <td>{count(sum((day) => day.requests))}</td>
            <td>{count(sum((day) => day.prompt_tokens))}</td>
            <td>{count(sum((day) => day.output_tokens))}</td>
            {hasCost && <td>{amount(sum((day) => day.cost_micros))}</td>}
            <td />
          </tr>
        </tfoot>
      </table>
    </div>
  );
}

function tokens(day: UsageDay): number {
  return day.prompt_tokens + day.output_tokens;
}

function count(n: number): string {
  return n.toLocaleString("en");
}
