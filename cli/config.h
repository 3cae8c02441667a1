/*
 * cli/config.h - the user's settings: $XDG_CONFIG_HOME/rattan/config.json, or ~/.config/rattan/config.json.
 *
 * They belong to the user alone: no client and no command changes them, and a file that others could write is
 * refused. A key that nobody knows is an error, as an option on the command line is.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include <cjson/cJSON.h>

#include "base/err.h"
#include "net/rules.h"

struct cli_config {
	char **bind_roots; /* directories below which --bind and its like may open; NULL-terminated, or NULL */
	char **runtime; /* what a profile that restricts reading lets be read beside; the same */
	char **pacman_mirrors; /* origins ("https://HOST[:PORT]") that may be mirrors of Arch, too; the same */
	struct net_rules net; /* of networks that a profile or the command line opens */
	bool landlock_only;   /* profiles are held by Landlock alone, or refused */
	cJSON *serve;         /* options of rattan serve, by name; owned, NULL: none */
};
/* A file that is not there is an empty one. -EINVAL with a sentence that names file and key. */
int cli_config_load(struct diag *diag, struct cli_config *ret) MUST_USE;
void cli_config_release(struct cli_config *c);
