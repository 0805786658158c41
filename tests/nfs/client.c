/* client: load on one share over NFS version 3, by libnfs: prints what was done per second.
 *
 *   client ADDRESS PORT MOUNT_PORT SHARE TEST DEPTH SECONDS
 *     TEST     read, write             4 KiB at random places of a file of 64 MiB: operations per second
 *              stream-read, -write     1 MiB one after another of the same file: bytes per second
 *              files                   create, stat (LOOKUP) and remove files: three rates
 *     DEPTH    calls in flight
 */
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <nfsc/libnfs.h>
#include <nfsc/libnfs-raw.h>
#include <nfsc/libnfs-raw-mount.h>
#include <nfsc/libnfs-raw-nfs.h>

enum { SMALL_BYTES = 4 << 10, LARGE_BYTES = 1 << 20, FILE_BYTES = 64 << 20, DEPTH_MAX = 1024 };
enum { FILES_MAX = 100000 };

enum job { READ, WRITE, STREAM_READ, STREAM_WRITE, CREATE, STAT, REMOVE };

static struct rpc_context *rpc;
static struct nfs_fh3 file, root;
static char data[LARGE_BYTES];

/* The present run. */
static enum job job;
static uint64_t begun, done, calls_max, random_state = 0x9e3779b97f4a7c15;
static double end;
static int in_flight;

static void fail(const char *what, const char *why)
{
	fprintf(stderr, "client: %s: %s\n", what, why);
	exit(1);
}

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec * 1e-9;
}

/* xorshift64: each run visits the same places. */
static uint64_t next_random(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	return random_state ^= random_state << 17;
}

static void submit(void);

static void on_reply(struct rpc_context *context, int status, void *results, void *private)
{
	uint32_t bytes = job == READ || job == WRITE ? SMALL_BYTES : LARGE_BYTES;
	(void)context;
	(void)private;
	if (status != RPC_STATUS_SUCCESS)
		fail("call", "no reply");
	/* Each of these results begins with nfsstat3. */
	if (*(nfsstat3 *)results != NFS3_OK)
		fail("call", nfsstat3_to_str(*(nfsstat3 *)results));
	if (job == READ || job == STREAM_READ) {
		struct READ3res *read = results;
		if (read->READ3res_u.resok.count != bytes)
			fail("read", "fewer bytes");
	}
	if (job == WRITE || job == STREAM_WRITE) {
		struct WRITE3res *write = results;
		if (write->WRITE3res_u.resok.count != bytes)
			fail("write", "fewer bytes");
	}
	in_flight--;
	done++;
	if (begun < calls_max && now() < end)
		submit();
}

static int submit_data(uint32_t bytes, uint64_t offset)
{
	if (job == READ || job == STREAM_READ) {
		struct READ3args args = { .file = file, .offset = offset, .count = bytes };
		return rpc_nfs3_read_async(rpc, on_reply, &args, NULL);
	}
	struct WRITE3args args = { .file = file, .offset = offset, .count = bytes, .stable = UNSTABLE };
	args.data.data_len = bytes;
	args.data.data_val = data;
	return rpc_nfs3_write_async(rpc, on_reply, &args, NULL);
}

static int submit_name(uint64_t number)
{
	char name[32];
	snprintf(name, sizeof name, "f%llu", (unsigned long long)number);
	struct diropargs3 what = { .dir = root, .name = name };
	if (job == CREATE) {
		struct CREATE3args args = { .where = what, .how.mode = UNCHECKED };
		args.how.createhow3_u.obj_attributes.mode.set_it = 1;
		args.how.createhow3_u.obj_attributes.mode.set_mode3_u.mode = 0644;
		return rpc_nfs3_create_async(rpc, on_reply, &args, NULL);
	}
	if (job == STAT) {
		struct LOOKUP3args args = { .what = what };
		return rpc_nfs3_lookup_async(rpc, on_reply, &args, NULL);
	}
	struct REMOVE3args args = { .object = what };
	return rpc_nfs3_remove_async(rpc, on_reply, &args, NULL);
}

static void submit(void)
{
	uint64_t number = begun++;
	int failed;
	switch (job) {
	case READ:
	case WRITE:
		failed = submit_data(SMALL_BYTES, next_random() % (FILE_BYTES / SMALL_BYTES) * SMALL_BYTES);
		break;
	case STREAM_READ:
	case STREAM_WRITE:
		failed = submit_data(LARGE_BYTES, number % (FILE_BYTES / LARGE_BYTES) * LARGE_BYTES);
		break;
	default:
		failed = submit_name(number);
	}
	if (failed)
		fail("submit", rpc_get_error(rpc));
	in_flight++;
}

/* Serves the connection until no call is in flight. */
static void finish(void)
{
	while (in_flight > 0) {
		struct pollfd fd = { .fd = rpc_get_fd(rpc), .events = rpc_which_events(rpc) };
		if (poll(&fd, 1, 10000) <= 0)
			fail("poll", "no reply within 10 s");
		if (rpc_service(rpc, fd.revents) < 0)
			fail("service", rpc_get_error(rpc));
	}
}

/* Runs calls, `depth` at a time, until the time is over or `max` were made. Returns how many per second. */
static double run(enum job what, int depth, double seconds, uint64_t max)
{
	double began = now();
	job = what;
	begun = done = 0;
	calls_max = max;
	end = began + seconds;
	while (in_flight < depth && begun < calls_max)
		submit();
	finish();
	return done / (now() - began);
}

static void keep_handle(struct nfs_fh3 *handle, uint32_t len, const char *bytes)
{
	handle->data.data_len = len;
	handle->data.data_val = malloc(len);
	if (!handle->data.data_val)
		fail("handle", "no memory");
	memcpy(handle->data.data_val, bytes, len);
}

static void on_connected(struct rpc_context *context, int status, void *results, void *private)
{
	(void)results;
	(void)private;
	if (status != RPC_STATUS_SUCCESS)
		fail("connect", rpc_get_error(context));
	in_flight--;
}

static void on_mounted(struct rpc_context *context, int status, void *results, void *private)
{
	struct mountres3 *mounted = results;
	(void)private;
	if (status != RPC_STATUS_SUCCESS)
		fail("mount", rpc_get_error(context));
	if (mounted->fhs_status != MNT3_OK)
		fail("mount", mountstat3_to_str(mounted->fhs_status));
	struct mountres3_ok *found = &mounted->mountres3_u.mountinfo;
	keep_handle(&root, found->fhandle.fhandle3_len, found->fhandle.fhandle3_val);
	in_flight--;
}

static void on_created(struct rpc_context *context, int status, void *results, void *private)
{
	struct CREATE3res *created = results;
	(void)private;
	if (status != RPC_STATUS_SUCCESS)
		fail("create", rpc_get_error(context));
	if (created->status != NFS3_OK)
		fail("create", nfsstat3_to_str(created->status));
	struct post_op_fh3 *handle = &created->CREATE3res_u.resok.obj;
	if (!handle->handle_follows)
		fail("create", "no handle");
	keep_handle(&file, handle->post_op_fh3_u.handle.data.data_len, handle->post_op_fh3_u.handle.data.data_val);
	in_flight--;
}

static void connect_to(const char *address, int port, int program)
{
	if (rpc)
		rpc_destroy_context(rpc);
	rpc = rpc_init_context();
	if (!rpc || rpc_connect_port_async(rpc, address, port, program, 3, on_connected, NULL))
		fail("connect", rpc ? rpc_get_error(rpc) : "no memory");
	in_flight++;
	finish();
}

static void mount(const char *address, int port, int mount_port, char *share)
{
	connect_to(address, mount_port, MOUNT_PROGRAM);
	if (rpc_mount3_mnt_async(rpc, on_mounted, share, NULL))
		fail("mount", rpc_get_error(rpc));
	in_flight++;
	finish();
	connect_to(address, port, NFS_PROGRAM);
}

/* The file of FILE_BYTES, written as a whole. */
static void open_file(void)
{
	struct CREATE3args args = { .where = { .dir = root, .name = "data" }, .how.mode = UNCHECKED };
	if (rpc_nfs3_create_async(rpc, on_created, &args, NULL))
		fail("create", rpc_get_error(rpc));
	in_flight++;
	finish();
	run(STREAM_WRITE, 4, 60, FILE_BYTES / LARGE_BYTES);
}

int main(int argc, char **argv)
{
	static const char *const names[] = { "read", "write", "stream-read", "stream-write" };
	if (argc != 8)
		fail("usage", "client ADDRESS PORT MOUNT_PORT SHARE TEST DEPTH SECONDS");
	const char *test = argv[5];
	int depth = atoi(argv[6]);
	double seconds = atof(argv[7]);
	if (depth < 1 || depth > DEPTH_MAX || seconds <= 0)
		fail("usage", "DEPTH is from 1 to 1024, SECONDS are above 0");
	mount(argv[1], atoi(argv[2]), atoi(argv[3]), argv[4]);
	memset(data, 0x5a, sizeof data);

	if (strcmp(test, "files") == 0) {
		double created = run(CREATE, depth, seconds, FILES_MAX);
		uint64_t files = done;
		double found = run(STAT, depth, 60, files);
		if (done != files)
			fail("stat", "too slow");
		double removed = run(REMOVE, depth, 60, files);
		if (done != files)
			fail("remove", "too slow");
		printf("%.0f %.0f %.0f\n", created, found, removed);
		return 0;
	}
	for (int i = 0; i < 4; i++) {
		if (strcmp(test, names[i]) == 0) {
			open_file();
			double rate = run(i, depth, seconds, UINT64_MAX);
			printf("%.0f\n", i < STREAM_READ ? rate : rate * LARGE_BYTES);
			return 0;
		}
	}
	fail("unknown test", test);
}
