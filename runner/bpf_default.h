/* runner/bpf_default.h - the filters of the default promises, compiled when rattan was built; one
 * element is one struct sock_filter. */
#pragma once

#include <stddef.h>
#include <stdint.h>

extern const uint64_t bpf_default_arguments[];
extern const size_t bpf_default_arguments_count;
extern const uint64_t bpf_default_calls[];
extern const size_t bpf_default_calls_count;
