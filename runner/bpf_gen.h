/*
 * runner/bpf_gen.h - the seccomp filters of a command, compiled with libseccomp from its promises.
 *
 * Two filters, because libseccomp cannot say "all but these" about one argument. The first allows
 * everything but argument values that are refused; the second is the list of calls. The kernel takes
 * the stricter answer, and remembers per call number where the answer does not depend on arguments.
 */
#pragma once

#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/* @text: space-separated names; NULL: the default set. -EINVAL names the unknown word in @diag. */
int promises_parse(const char *text, struct diag *diag, uint32_t *ret) MUST_USE;

struct bpf_filters {
	struct buf arguments, calls; /* struct sock_filter */
};
int bpf_gen(uint32_t promises, struct bpf_filters *ret) MUST_USE;
void bpf_filters_release(struct bpf_filters *f);
