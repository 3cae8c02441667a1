/* Runs a fuzz target over the files named on the command line (directories: the files in them), each
 * twice, so that state left behind shows. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int run_file(const char *path)
{
	FILE *f = fopen(path, "rbe");
	uint8_t *p = malloc(1 << 20);
	size_t n;

	if (!f || !p) {
		if (f)
			(void)fclose(f);
		free(p);
		return 0;
	}
	n = fread(p, 1, 1 << 20, f);
	(void)fclose(f);
	(void)LLVMFuzzerTestOneInput(p, n);
	(void)LLVMFuzzerTestOneInput(p, n);
	free(p);
	return 1;
}

int main(int argc, char **argv)
{
	int i, n = 0;

	for (i = 1; i < argc; i++) {
		DIR *d = opendir(argv[i]);
		struct dirent *e;
		char path[4096];

		if (!d)
			n += run_file(argv[i]);
		while (d && (e = readdir(d))) {
			(void)snprintf(path, sizeof(path), "%s/%s", argv[i], e->d_name);
			n += e->d_name[0] != '.' && run_file(path);
		}
		if (d)
			(void)closedir(d);
	}
	printf("%sok 1 - %d inputs\n1..1\n", n ? "" : "not ", n);
	return n ? 0 : 1;
}
