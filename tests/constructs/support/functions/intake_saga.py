"""An event intake's handler that begins sagas."""

from saga_runtime import Begin, WebhookEvent, event_saga


@event_saga
def handler(event: WebhookEvent) -> Begin | None:
    """Read the order."""
    return Begin(key=event.json["order"], request={"order": event.json["order"]})
