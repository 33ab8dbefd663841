"""The containers of Azure Blob Storage, by obstore. Imported for locations of Azure alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from obstore.store import AzureStore

from fencepost.broker.cluster.objects.location import ObjectLocation

if TYPE_CHECKING:
    from obstore.store import AzureConfig, ClientConfig


def open_container(location: ObjectLocation, client: ClientConfig) -> AzureStore:
    """Open the container of a location. Raises ValueError and obstore's BaseError.

    An account and a key that it lacks are in the environment (AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ACCOUNT_KEY,
    AZURE_STORAGE_SAS_KEY and others), or is the machine's managed identity.
    """
    config: dict[str, Any] = {
        key: value
        for key, value in (
            ("endpoint", location.endpoint),
            ("account_name", location.account),
            ("account_key", location.account_key),
        )
        if value is not None
    }
    typed: AzureConfig = config  # type: ignore[assignment]
    return AzureStore(location.bucket, config=typed, client_options=client, retry_config={"max_retries": 0})
