/*
 * profile/casefold.h - rules on names where the host's file system takes other spellings for the same name: what cannot be held
 * there is refused. For the files of this folder.
 */
#pragma once

#include "policy/rules.h"

/* -EINVAL with a sentence where another spelling of a name of @rules would be allowed more, and the host has it for the same. Asks
 * what is there now. */
int casefold_check(const struct policy_rules *rules, struct diag *diag) MUST_USE;
