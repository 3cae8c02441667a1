/*
 * store/proof.h - of large chunks whose digest this process has computed: a check value of each page.
 *
 * What a chunk's digest takes 90 us to tell, its pages' check values tell in 6, and each page by itself. They are XXH3 with
 * a secret that this process alone has, of bytes that had the digest: from the disk come the same again, but for one
 * chance in 2^64, or they are not believed and the digest decides (S4). They are in memory only, and bounded.
 */
#pragma once

#include "store/digest.h"

#define PROOF_PAGE  4096u
#define PROOF_PAGES 32u
#define PROOF_MIN   (32u << 10) /* bytes of a chunk: a smaller one is hashed as fast as it is found */
#define PROOF_SETS  4096u
#define PROOF_WAYS  4u /* so 16,384 chunks: 2 GiB of them, 5 MiB of memory */

struct proof {
	struct digest of;
	uint32_t len;
	uint64_t page[PROOF_PAGES];
};

struct proofs;
int proofs_new(struct proofs **ret) MUST_USE;
void proofs_free(struct proofs *p); /* accepts NULL */
/* @data has the digest @d. Nothing is kept of what is too small, or when there is no memory. */
void proofs_note(struct proofs *p, const struct digest *d, const void *data, size_t len);
bool proofs_find(struct proofs *p, const struct digest *d, struct proof *ret);
/* Whether @n bytes at the page @first are the chunk's; all of the last page that is touched, or up to the chunk's end. */
bool proof_fits(const struct proofs *p, const struct proof *x, size_t first, const void *data,
		size_t n);
