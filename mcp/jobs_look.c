/* Jobs by their ids, and their output. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "mcp/jobs_internal.h"

struct job *jobs_find(struct jobs *js, const char *id)
{
	struct job *j;

	(void)pthread_mutex_lock(&js->lock);
	for (j = js->all; j; j = j->next)
		if (j->listed && !strcmp(j->id, id))
			break;
	if (j)
		j->refs++;
	(void)pthread_mutex_unlock(&js->lock);
	return j;
}

bool jobs_of_other(const struct jobs *js, const char *id)
{
	size_t n = id[0] == 'j' ? strspn(id + 1, "0123456789") : 0;
	const char *nonce = id + 1 + n + 1;
	char *end;

	if (!n || id[1 + n] != '-' || strlen(nonce) != 8)
		return false;
	return strtoul(nonce, &end, 16) != js->nonce && !*end;
}

size_t jobs_list(struct jobs *js, struct job **ret, size_t max)
{
	size_t n = 0;

	(void)pthread_mutex_lock(&js->lock);
	for (struct job *j = js->all; j && n < max; j = j->next) {
		if (!j->listed)
			continue;
		j->refs++;
		ret[n++] = j;
	}
	(void)pthread_mutex_unlock(&js->lock);
	return n;
}

uint64_t job_token(const struct job *j)
{
	return j->token;
}

uint64_t job_denied(const struct job *j)
{
	return j->denied;
}

const char *job_shut(const struct job *j)
{
	return j->shut.len ? (const char *)j->shut.data : "";
}

int job_asked(struct job *j, struct run_asked **ret, size_t *ret_n, uint64_t *ret_total)
{
	int r = 0;

	(void)pthread_mutex_lock(&j->run_lock);
	if (j->cr) {
		r = run_asked(client_run_of(j->cr), ret, ret_n, ret_total);
	} else {
		*ret = j->nasked ? malloc(j->nasked * sizeof(**ret)) : NULL;
		*ret_n = *ret ? j->nasked : 0;
		*ret_total = j->asked_total;
		if (*ret)
			memcpy(*ret, j->asked, j->nasked * sizeof(**ret));
	}
	(void)pthread_mutex_unlock(&j->run_lock);
	return r;
}

uint64_t job_size(struct job *j, int stream)
{
	struct stat st;

	if (j->spill_fd[stream] < 0 || fstat(j->spill_fd[stream], &st))
		return 0;
	return (uint64_t)st.st_size;
}

ssize_t job_read(struct job *j, int stream, uint64_t off, void *p, size_t n)
{
	if (j->spill_fd[stream] < 0)
		return 0;
	return io_pread_full(j->spill_fd[stream], p, n, (off_t)off);
}

int job_open_output(struct job *j, int stream, int *ret_fd)
{
	int fd = j->spill_fd[stream];

	if (fd < 0)
		return -ENOENT;
	*ret_fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	return *ret_fd < 0 ? ret_nerrno() : 0;
}

void job_get_info(struct job *j, struct job_info *ret)
{
	long long now = io_now_ms();

	*ret = (struct job_info){.command = j->command,
				 .env = j->env,
				 .cwd = j->cwd,
				 .separate = j->separate,
				 .input = j->input};
	memcpy(ret->id, j->id, sizeof(ret->id));
	(void)pthread_mutex_lock(&j->js->lock);
	ret->ended = j->ended;
	ret->cancelled = j->cancelled;
	ret->age_s = (double)((j->ended ? j->ended_ms : now) - j->started_ms) / 1000;
	ret->ended_s = j->ended ? (double)(now - j->ended_ms) / 1000 : 0;
	ret->result = j->result;
	(void)pthread_mutex_unlock(&j->js->lock);
	if (!ret->ended)
		ret->command_ended = job_command_of(j, &ret->result);
	ret->size[0] = job_size(j, 0);
	ret->size[1] = job_size(j, 1);
}
