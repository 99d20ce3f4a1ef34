import hooks from "eslint-plugin-react-hooks";
import tseslint from "typescript-eslint";

export default tseslint.config(
  { ignores: ["dist", "node_modules", "e2e/out"] },
  ...tseslint.configs.recommended,
  hooks.configs.flat.recommended,
  {
    rules: {
      "no-console": "error",
      eqeqeq: "error",
      "max-lines": ["error", 400],
      "max-lines-per-function": ["error", { max: 80, skipBlankLines: true, skipComments: true }],
      "max-params": ["error", 5],
    },
  },
  {
    files: ["**/*.test.{ts,tsx}", "e2e/**"],
    rules: { "max-lines-per-function": "off", "no-console": "off" },
  },
);
