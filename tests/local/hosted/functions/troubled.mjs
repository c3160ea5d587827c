// The same step, with troubles of the function's own, which the request asks for.
import * as payments from "./payments.mjs";

const never = new Promise(() => setInterval(() => {}, 1_000));

export async function apply(event, context) {
  const { trouble } = event.request;
  const answer = await payments.apply(event, context);
  if (trouble === "dawdle") await never; // until Lambda ends it
  if (trouble === "exit") process.exit(1);
  if (trouble === "throw") throw new RangeError("a bug behind the charge");
  if (trouble === "nonsense") return "charged";
  return answer;
}
