#!/bin/sh
# A hook: `sh release.sh 1.4` tells everybody who listens that 1.4 was released.
exec svc event release.cut "{\"version\": \"$1\"}"
