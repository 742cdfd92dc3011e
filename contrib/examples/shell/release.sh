#!/bin/sh
# A hook: `sh release.sh 1.4` emits an event about the release of 1.4.
exec svc event release.cut "{\"version\": \"$1\"}"
