// One file, so that its parts run in turn: some of them watch how many sequences the server runs.
import "./chat.mjs";
import "./completions.mjs";
import "./errors.mjs";
import "./ai.mjs";
import "./batches.mjs";
