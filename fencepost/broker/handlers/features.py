"""UpdateFeatures: changing the levels of `transaction.version` and `group.version` at run time.

Source: KIP-584, KIP-1022; Kafka's FeatureControlManager and UpdateFeaturesRequest.
"""

from __future__ import annotations

from typing import Any

from fencepost.broker.hosting.features import FeatureUpdate, UpgradeType
from fencepost.broker.requests.administrative_changes import AdministrativeChange, Changes
from fencepost.broker.requests.api import RequestContext, api
from fencepost.broker.requests.declared_errors import codes
from fencepost.broker.requests.declared_rights import NeededRights
from fencepost.broker.rights.needed_rights import ALTER, cluster
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.features import UpdatableFeatureResult, UpdateFeaturesRequest, UpdateFeaturesResponse

FIRST_VERSION_WITH_UPGRADE_TYPES = 1
LAST_VERSION_WITH_RESULTS = 1
DONE_MESSAGE = "NONE"


def update_features_failed(
    request: UpdateFeaturesRequest, error: ErrorCode, version: int, message: str | None = None
) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(error_code=error, error_message=message, results=[])


def _audit(context: RequestContext, request: Any, response: Any) -> Changes:
    if request.validate_only or response.error_code:
        return
    failed = {result.feature for result in response.results if result.error_code}
    for update in request.feature_updates:
        if update.feature not in failed:
            yield AdministrativeChange("ALTER", "FEATURE", update.feature, {"level": update.max_version_level})


@api(
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
    versions="0-2",
    rights=NeededRights(cluster(ALTER)),
    audit=_audit,
    awaits_other_nodes=True,
    needs_lease=False,
    errors=codes("CLUSTER_AUTHORIZATION_FAILED KAFKA_STORAGE_ERROR INVALID_UPDATE_VERSION"),
    failed=update_features_failed,
)
async def handle_update_features(context: RequestContext, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    """Set the levels of features, all or none; ApiVersions shows them from then on, also after a restart.

    Refuses: INVALID_UPDATE_VERSION, KAFKA_STORAGE_ERROR.
    """
    features, version = context.services.features, context.api_version
    updates = []
    for wanted in request.feature_updates:
        upgrade_type = wanted.upgrade_type
        if version < FIRST_VERSION_WITH_UPGRADE_TYPES and wanted.allow_downgrade:
            upgrade_type = UpgradeType.SAFE_DOWNGRADE
        updates.append(FeatureUpdate(wanted.feature, wanted.max_version_level, upgrade_type))
    for update in updates:
        reason = features.check(update)
        if reason is not None:
            message = (
                "The update failed for all features since the following feature had an error: "
                f"Invalid update version {update.level} for feature {update.name}. {reason}"
            )
            return update_features_failed(request, ErrorCode.INVALID_UPDATE_VERSION, version, message)
    if not request.validate_only:
        try:
            await features.update(updates)
        except StorageError as error:
            return update_features_failed(request, ErrorCode.KAFKA_STORAGE_ERROR, version, str(error))
    results = []
    if version <= LAST_VERSION_WITH_RESULTS:
        results = [
            UpdatableFeatureResult(feature=update.name, error_code=ErrorCode.NONE, error_message=DONE_MESSAGE)
            for update in updates
        ]
    return UpdateFeaturesResponse(error_code=ErrorCode.NONE, error_message=None, results=results)
