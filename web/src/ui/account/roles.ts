import type { Role, User } from "../../account/state";

/** The roles that `me` may give, for a select. */
export function rolesFor(me: User): readonly (readonly [Role, string])[] {
  const roles: Role[] = me.role === "owner" ? ["member", "admin", "owner"] : ["member"];
  return roles.map((role) => [role, role] as const);
}
