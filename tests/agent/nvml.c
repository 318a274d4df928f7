/* A driver's library for tests: two cards, listed against the order of the bus, joined by four NVLinks; with
 * FAKE_NVML_CUT a third that is cut into two MIG instances. Who holds memory on them comes from a file that
 * FAKE_NVML_HOLDERS names ("<card> <pid> [<MiB>, or -: not told]" a line, cards by bus order). The first has profiling
 * counters where FAKE_NVML_GPM is set. While the file that FAKE_NVML_HANG names exists, the driver hangs. */
#include <math.h>
#include <unistd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef int R;
typedef struct dev { int bus; int instance; } *D;
static struct dev cards[3] = {{0x81, -1}, {0x18, -1}, {0xc1, -1}}, cut[2] = {{0xc1, 0}, {0xc1, 2}};
enum { OK = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7 };
static int is_cut(void) { return getenv("FAKE_NVML_CUT") != 0; }
static R init(void) {
    while (getenv("FAKE_NVML_HANG") && access(getenv("FAKE_NVML_HANG"), F_OK) == 0) usleep(20000);
    return OK;
}
R nvmlInitWithFlags(unsigned f) { return init(); }
R nvmlInit_v2(void) { return init(); }
R nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(R r) { return r == OK ? "Success" : "Not Supported"; }
R nvmlSystemGetDriverVersion(char *b, unsigned l) { snprintf(b, l, "570.86.15"); return OK; }
R nvmlDeviceGetCount_v2(unsigned *c) { *c = is_cut() ? 3 : 2; return OK; }
R nvmlDeviceGetHandleByIndex_v2(unsigned i, D *d) { *d = &cards[i]; return OK; }
R nvmlDeviceGetName(D d, char *b, unsigned l) {
    const char *name = d->bus == 0x18 ? "NVIDIA L40S" : d->bus == 0x81 ? "NVIDIA GB10" : "NVIDIA H100 80GB HBM3";
    snprintf(b, l, d->instance == 0 ? "%s MIG 3g.40gb" : d->instance > 0 ? "%s MIG 1g.10gb+me" : "%s", name);
    return OK;
}
R nvmlDeviceGetUUID(D d, char *b, unsigned l) {
    if (d->instance < 0) snprintf(b, l, "GPU-%02x", d->bus); else snprintf(b, l, "MIG-%02x-%d", d->bus, d->instance);
    return OK;
}
typedef struct { unsigned long long total, free, used; } Mem;
R nvmlDeviceGetMemoryInfo(D d, Mem *m) {
    if (d->bus == 0x81) return NOT_SUPPORTED;
    m->total = d->bus == 0x18 ? 48305799168ULL : (d->instance == 0 ? 40448ULL : d->instance > 0 ? 9728ULL : 81559ULL) << 20;
    m->used = 1ULL << 20; m->free = m->total - m->used;
    return OK;
}
typedef struct { char l[16]; unsigned domain, bus, device, pci, sub; char b[32]; } Pci;
R nvmlDeviceGetPciInfo_v3(D d, Pci *p) {
    memset(p, 0, sizeof *p); p->bus = d->bus; snprintf(p->b, 32, "00000000:%02X:00.0", d->bus); return OK;
}
R nvmlDeviceGetTemperature(D d, int s, unsigned *t) { *t = 55; return OK; }
R nvmlDeviceGetPowerUsage(D d, unsigned *p) { *p = 412000; return OK; }
R nvmlDeviceGetMaxPcieLinkGeneration(D d, unsigned *g) { *g = 4; return OK; }
R nvmlDeviceGetGpuMaxPcieLinkGeneration(D d, unsigned *g) { *g = 5; return OK; }
R nvmlDeviceGetCurrPcieLinkWidth(D d, unsigned *w) { *w = 8; return OK; }
R nvmlDeviceGetMaxPcieLinkWidth(D d, unsigned *w) { *w = 16; return OK; }
R nvmlDeviceGetTotalEccErrors(D d, int type, int counter, unsigned long long *n) { *n = type == 1 && counter == 0 ? 2 : 9; return OK; }
R nvmlDeviceGetRemappedRows(D d, unsigned *c, unsigned *u, unsigned *pending, unsigned *f) { *c = *u = *f = 0; *pending = 1; return OK; }
R nvmlDeviceGetMigMode(D d, unsigned *c, unsigned *p) { *c = *p = d->bus == 0xc1; return OK; }
R nvmlDeviceGetMaxMigDeviceCount(D d, unsigned *c) { *c = d->bus == 0xc1 ? 7 : 0; return OK; }
R nvmlDeviceGetMigDeviceHandleByIndex(D d, unsigned i, D *o) {
    if (d->bus != 0xc1 || (i != 0 && i != 2)) return NOT_FOUND;
    *o = &cut[i / 2]; return OK;
}
R nvmlDeviceGetNvLinkState(D d, unsigned link, unsigned *on) {
    if (d->bus == 0xc1) return NOT_SUPPORTED;
    *on = link < 4; return OK;
}
R nvmlDeviceGetNvLinkRemoteDeviceType(D d, unsigned link, unsigned *t) { *t = 0; return OK; }
R nvmlDeviceGetNvLinkRemotePciInfo_v2(D d, unsigned link, Pci *p) { return nvmlDeviceGetPciInfo_v3(d == &cards[0] ? &cards[1] : &cards[0], p); }
typedef struct { unsigned char cluster[16]; unsigned status, clique, state; } Fabric;
R nvmlDeviceGetGpuFabricInfo(D d, Fabric *f) {
    if (d->bus != 0x18) return NOT_SUPPORTED;
    memset(f, 0, sizeof *f); f->cluster[0] = 0xa1; f->cluster[15] = 0x55; f->clique = 7; f->state = 3;
    return OK;
}
typedef struct { unsigned pid; unsigned long long used; unsigned gi, ci; } Proc;
R nvmlDeviceGetComputeRunningProcesses_v3(D d, unsigned *n, Proc *p) {
    unsigned room = *n, found = 0; int card; unsigned pid; char line[80], mib[20];
    FILE *f = fopen(getenv("FAKE_NVML_HOLDERS"), "r");
    while (f && fgets(line, sizeof line, f)) {
        strcpy(mib, "1");
        if (sscanf(line, "%d %u %19s", &card, &pid, mib) < 2) continue;
        if (card == (d->bus == 0x18 ? 0 : d->bus == 0x81 ? 1 : 1200 + d->instance)) {
            if (found < room) { memset(&p[found], 0, sizeof *p); p[found].pid = pid; p[found].used = mib[0] == '-' ? ~0ULL : strtoull(mib, 0, 10) << 20; }
            found++;
        }
    }
    if (f) fclose(f);
    *n = found;
    return found > room ? TOO_SMALL : OK;
}
typedef struct { unsigned gpu, memory; } Rates;
R nvmlDeviceGetUtilizationRates(D d, Rates *r) {
    if (d->bus != 0x18) return NOT_SUPPORTED;
    r->gpu = 92; r->memory = 30; return OK;
}
R nvmlDeviceGetEnforcedPowerLimit(D d, unsigned *p) { *p = 700000; return OK; }
typedef struct { unsigned version, supported; } Support;
R nvmlGpmQueryDeviceSupport(D d, Support *s) { s->supported = getenv("FAKE_NVML_GPM") != 0 && d->bus == 0x18; return OK; }
typedef struct { int taken; } *Sample;
R nvmlGpmSampleAlloc(Sample *s) { *s = calloc(1, sizeof **s); return OK; }
R nvmlGpmSampleFree(Sample s) { free(s); return OK; }
R nvmlGpmSampleGet(D d, Sample s) { static int n; s->taken = ++n; return OK; }
typedef struct { unsigned id; R result; double value; struct { char *a, *b, *c; } info; } Measure;
typedef struct { unsigned version, count; Sample first, second; Measure measures[]; } Measures;
R nvmlGpmMetricsGet(Measures *m) {
    if (m->first->taken >= m->second->taken) return 2;
    for (unsigned i = 0; i < m->count; i++) {
        Measure *one = &m->measures[i];
        one->result = one->id == 10 ? NOT_SUPPORTED : OK;
        one->value = one->id == 2 ? 69.04 : one->id == 3 ? 40.5 : one->id == 5 ? (double) NAN : 99;
    }
    return OK;
}
