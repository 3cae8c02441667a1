#include "store/digest.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

/* Reading openssl.cnf and its providers takes 5 to 10 ms of a daemon's start, and SHA-256 must not depend
 * on them. When it fails, so will the first digest. */
void digest_prepare(void)
{
	(void)OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG, NULL);
}

int digest_of(const void *p, size_t n, struct digest *ret)
{
	unsigned len = 0;
	struct digest d;

	/* EVP_Digest fails only when it cannot allocate or the provider is gone. */
	if (EVP_Digest(p, n, d.b, &len, EVP_sha256(), NULL) != 1 || len != DIGEST_LEN)
		return -ENOMEM;
	*ret = d;
	return 0;
}

/* The context itself: the name is only for those who do not know OpenSSL. */
static EVP_MD_CTX *ctx_of(struct digest_run *d)
{
	return (EVP_MD_CTX *)(void *)d;
}

int digest_begin(struct digest_run **ret)
{
	EVP_MD_CTX *c = EVP_MD_CTX_new();

	if (!c || EVP_DigestInit_ex(c, EVP_sha256(), NULL) != 1) {
		EVP_MD_CTX_free(c);
		return -ENOMEM;
	}
	*ret = (struct digest_run *)(void *)c;
	return 0;
}

int digest_add(struct digest_run *d, const void *p, size_t n)
{
	return EVP_DigestUpdate(ctx_of(d), p, n) == 1 ? 0 : -ENOMEM;
}

int digest_end(struct digest_run *d, struct digest *ret)
{
	unsigned len = 0;
	struct digest got;

	if (EVP_DigestFinal_ex(ctx_of(d), got.b, &len) != 1 || len != DIGEST_LEN)
		return -ENOMEM;
	*ret = got;
	return 0;
}

void digest_free(struct digest_run *d)
{
	EVP_MD_CTX_free(ctx_of(d));
}

void digest_hex(const struct digest *d, char out[static DIGEST_LEN * 2 + 1])
{
	static const char hex[] = "0123456789abcdef";

	for (size_t i = 0; i < DIGEST_LEN; i++) {
		out[2 * i] = hex[d->b[i] >> 4];
		out[2 * i + 1] = hex[d->b[i] & 15];
	}
	out[DIGEST_LEN * 2] = 0;
}

static int nibble(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -EINVAL;
}

int digest_parse(const char *hex, struct digest *ret)
{
	struct digest d;

	for (size_t i = 0; i < DIGEST_LEN; i++) {
		int hi = nibble(hex[2 * i]);
		int lo = hi < 0 ? hi : nibble(hex[2 * i + 1]);

		if (lo < 0)
			return -EINVAL;
		d.b[i] = (uint8_t)(hi << 4 | lo);
	}
	if (hex[DIGEST_LEN * 2])
		return -EINVAL;
	*ret = d;
	return 0;
}
