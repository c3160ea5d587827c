"""An event intake's handler."""

from saga_runtime import Begin, Commit, DirectCall, WebhookEvent, event_operation


def read(event: WebhookEvent) -> Begin | None:
    """Read the payment."""
    return Begin(key=event.json["payment"], request={"payment": event.json["payment"]})


@event_operation(read)
def handler(call: DirectCall) -> Commit:
    """Write nothing."""
    return Commit(output={"payment": call.request["payment"]})
