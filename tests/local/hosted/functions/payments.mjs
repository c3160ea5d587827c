// Charges a card at a payment gateway, and gives the money back. Four Lambda functions, run by a step host.

const GATEWAY = process.env.PAYMENT_GATEWAY_URL;
const SPARE_MS = 1_000; // to answer before Lambda ends the function

export async function apply(event, context) {
  const { card, amount, currency } = event.request;
  const answer = await send("POST", "/charges", event, context, { card, amount, currency, reference: event.saga_id });
  if (answer.status === 402) {
    return { error: { name: "CardDeclined", message: "the card was declined" } };
  }
  return { output: receiptOf(await documentOf(answer, 201)) };
}

export async function verify(event, context) {
  const answer = await send("GET", `/charges?key=${event.provider_key}`, event, context);
  const { found, in_work } = await documentOf(answer, 200);
  const charge = found.find(({ status }) => status === "succeeded");
  if (charge) {
    return { verdict: "applied", output: receiptOf(charge) };
  }
  return { verdict: in_work ? "pending" : "not_applied" };
}

export async function undo(event, context) {
  const { charge, amount } = event.output;
  const body = { charge, amount: Number(amount), reference: event.saga_id };
  await documentOf(await send("POST", "/refunds", event, context, body), 201);
  return { output: {} };
}

export async function verifyUndo(event, context) {
  const answer = await send("GET", `/refunds?key=${event.provider_key}`, event, context);
  const { found, in_work } = await documentOf(answer, 200);
  if (found.length) {
    return { verdict: "applied" };
  }
  return { verdict: in_work ? "pending" : "not_applied" };
}

// One request, under the step's own key, and no retry: that is the saga's business.
function send(method, path, event, context, body) {
  return fetch(GATEWAY + path, {
    method,
    body: body && JSON.stringify(body),
    headers: { "Content-Type": "application/json", "Idempotency-Key": event.provider_key },
    signal: AbortSignal.timeout(Math.max(1, context.getRemainingTimeInMillis() - SPARE_MS)),
  });
}

// Neither the expected response nor a clear refusal: the step is in doubt. Throw, and the row decides later.
async function documentOf(answer, expected) {
  if (answer.status !== expected) {
    throw new Error(`the gateway answered ${answer.status}`);
  }
  return answer.json();
}

function receiptOf({ id, amount }) {
  return { charge: id, amount: String(amount) };
}
