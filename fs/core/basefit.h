/*
 * fs/core/basefit.h - what a sandbox mounts over, and where commands work, in a tree that came from elsewhere.
 */
#pragma once

#include "base/err.h"
#include "store/store.h"

/* A base as environments begin on it: *layer, or a new sealed layer over it with the directories that it lacks: mount points
 * (/proc, /dev, /sys, /run), /tmp, /var/tmp, /home/user and /workspace; and /etc/hosts, which who runs an image brings along. The base itself stays what was imported. */
int basefit(struct store *s, store_layer *layer) MUST_USE;
