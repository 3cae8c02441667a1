/* mcp/denials.h - what a command was refused, by the policy on its files and by the rules on its network, as text and JSON. */
#pragma once

#include <cjson/cJSON.h>

#include "mcp/shelltext.h"

/* Why something failed that the command itself can only call "permission denied". */
int denials_put(struct buf *out, const struct job_info *in, const struct changes *ch) MUST_USE;
/* denials, denials_total; network, network_total. */
void denials_facts(cJSON *o, const struct changes *ch);
