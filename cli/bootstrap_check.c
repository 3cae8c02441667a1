/* Is an archive what its maker made? */
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "cli/bootstrap_plan.h"
#include "cli/cli.h"
#include "cli/program.h"

#define PIECE        (1u << 20)
#define ARCH_KEYRING "/usr/share/pacman/keyrings/archlinux.gpg"
#define GPGV_KEYRING "/usr/share/keyrings/archlinux.gpg" /* where Debian has it */

static int sum(int fd, uint64_t size, EVP_MD_CTX *ctx, char ret[static 65], struct diag *diag)
{
	cleanup_free uint8_t *buf = malloc(PIECE);
	uint8_t md[EVP_MAX_MD_SIZE];
	struct cli_bar bar;
	unsigned len = 0;
	ssize_t n = 0;

	if (!buf || !EVP_DigestInit_ex(ctx, EVP_sha256(), NULL))
		return -ENOMEM;
	cli_bar_start(&bar);
	for (uint64_t at = 0; (n = io_read_full(fd, buf, PIECE)) > 0; at += (uint64_t)n) {
		if (!EVP_DigestUpdate(ctx, buf, (size_t)n))
			return -ENOMEM;
		cli_bar_put(&bar, "checking", "MiB", at >> 20, size >> 20);
	}
	cli_bar_clear(&bar);
	if (n < 0)
		return diag_set(diag, (int)n, "cannot read the archive: %s", err_text((int)n));
	if (!EVP_DigestFinal_ex(ctx, md, &len) || len != 32)
		return -ENOMEM;
	for (unsigned i = 0; i < len; i++)
		(void)snprintf(ret + 2 * (size_t)i, 3, "%02x", md[i]);
	return 0;
}

static int check_digest(const struct bootstrap_plan *p, int fd, const struct stat *st,
			struct diag *diag)
{
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	char is[65] = "";
	int r = ctx ? sum(fd, (uint64_t)st->st_size, ctx, is, diag) : -ENOMEM;

	EVP_MD_CTX_free(ctx);
	if (r == 0 && strcmp(is, p->sha256) != 0)
		return diag_set(diag, -EBADMSG,
				"%s is not the archive that was meant: its SHA-256 is %s, and "
				"not %s",
				p->archive, is, p->sha256);
	return r;
}

static int check_signature(const struct bootstrap_plan *p, const char *path, struct diag *diag)
{
	const char *keyring = p->keyring                        ? p->keyring
			      : access(ARCH_KEYRING, R_OK) == 0 ? ARCH_KEYRING
								: GPGV_KEYRING;
	const char *const argv[] = {"gpgv", "--keyring", keyring, "--", p->signature, path, NULL};
	cleanup_buf struct buf said = {0};
	int status = 0, r;
	const char *line;

	if (access(keyring, R_OK) < 0)
		return diag_set(diag, -ENOENT,
				"there is no keyring %s to check the signature with: install the "
				"package archlinux-keyring, or name one with --keyring",
				keyring);
	r = program_run(argv, NULL, &said, &status);
	if (r == 0)
		r = buf_put(&said, "", 1);
	if (r < 0)
		return diag_set(diag, r, "cannot run gpgv: %s", err_text(r));
	if (program_missing(status))
		return diag_set(
			diag, -ENOPKG,
			"there is no gpgv on this machine, which checks signatures: install the "
			"package gpgv");
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	line = strstr((const char *)said.data, "BAD signature");
	return diag_set(diag, -EBADMSG, "the signature of %s does not hold: %s", p->archive,
			line ? "it was made for other bytes" : program_last_line(&said));
}

int bootstrap_check(const struct bootstrap_plan *p, const char *path, struct diag *diag,
		    struct stat *ret, int *ret_fd)
{
	cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	int r = 0;

	if (fd < 0 || fstat(fd, ret) < 0)
		return diag_set(diag, ret_nerrno(), "cannot open the archive %s: %s", path,
				err_text(errno));
	if (!S_ISREG(ret->st_mode))
		return diag_set(diag, -EINVAL, "the archive %s is no file: it is read twice", path);
	if (p->sha256)
		r = check_digest(p, fd, ret, diag);
	if (r == 0 && p->signature)
		r = check_signature(p, path, diag);
	if (r == 0 && !bootstrap_same(path, ret))
		r = diag_set(diag, -ESTALE, "the archive %s changed while it was checked", path);
	if (r == 0)
		*ret_fd = steal_fd(&fd);
	return r;
}

bool bootstrap_same(const char *path, const struct stat *was)
{
	struct stat is;

	return stat(path, &is) == 0 && is.st_dev == was->st_dev && is.st_ino == was->st_ino &&
	       is.st_size == was->st_size && is.st_mtim.tv_sec == was->st_mtim.tv_sec &&
	       is.st_mtim.tv_nsec == was->st_mtim.tv_nsec &&
	       is.st_ctim.tv_sec == was->st_ctim.tv_sec &&
	       is.st_ctim.tv_nsec == was->st_ctim.tv_nsec;
}
