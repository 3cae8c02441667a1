/*
 * tests/unit/runner/bpf_sim.h - what a pair of filters says to a call, computed as the kernel computes it: so a
 * refusal is known to be the filter's and not one that the kernel would have given anyway, and calls of another
 * architecture can be asked about on this one.
 */
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* One program; what it does not know is a kill that no test expects. */
static inline uint32_t bpf_sim_one(const struct sock_filter *f, size_t n,
				   const struct seccomp_data *d)
{
	uint32_t a = 0, v;
	size_t pc = 0;

	while (pc < n) {
		const struct sock_filter *i = &f[pc++];

		switch (i->code) {
		case BPF_LD | BPF_W | BPF_ABS:
			if (i->k + sizeof(a) > sizeof(*d))
				return SECCOMP_RET_KILL_THREAD;
			memcpy(&a, (const uint8_t *)d + i->k, sizeof(a));
			break;
		case BPF_ALU | BPF_AND | BPF_K:
			a &= i->k;
			break;
		case BPF_JMP | BPF_JA:
			pc += i->k;
			break;
		case BPF_JMP | BPF_JEQ | BPF_K:
			pc += a == i->k ? i->jt : i->jf;
			break;
		case BPF_JMP | BPF_JGT | BPF_K:
			pc += a > i->k ? i->jt : i->jf;
			break;
		case BPF_JMP | BPF_JGE | BPF_K:
			pc += a >= i->k ? i->jt : i->jf;
			break;
		case BPF_JMP | BPF_JSET | BPF_K:
			v = a & i->k;
			pc += v ? i->jt : i->jf;
			break;
		case BPF_RET | BPF_K:
			return i->k;
		default:
			return SECCOMP_RET_KILL_THREAD;
		}
	}
	return SECCOMP_RET_KILL_THREAD;
}

/* The stricter of both answers, as seccomp_run_filters() has it. */
static inline uint32_t bpf_sim(const void *const prog[2], const size_t len[2],
			       const struct seccomp_data *d)
{
	uint32_t least = SECCOMP_RET_ALLOW, r;
	int i;

	for (i = 0; i < 2; i++) {
		r = bpf_sim_one(prog[i], len[i], d);
		if ((int32_t)(r & SECCOMP_RET_ACTION_FULL) <
		    (int32_t)(least & SECCOMP_RET_ACTION_FULL))
			least = r;
	}
	return least;
}
