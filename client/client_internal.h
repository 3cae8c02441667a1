/* client/client_internal.h - for the files of this folder. */
#pragma once

#include "fs/ctl/ctl_client.h"

int client_opts_dup(const struct ctl_env_opts *o, struct ctl_env_opts *ret) MUST_USE;
void client_opts_release(struct ctl_env_opts *o);
