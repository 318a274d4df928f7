/* A driver's library for tests: two cards, listed against the order of the bus, joined by four NVLinks; with
 * FAKE_NVML_CUT a third that is cut into two MIG instances. Who holds memory on them comes from a file that
 * FAKE_NVML_HOLDERS names ("<card> <pid>" a line, cards by bus order). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef int R;
typedef struct dev { int bus; int instance; } *D;
static struct dev cards[3] = {{0x81, -1}, {0x18, -1}, {0xc1, -1}}, cut[2] = {{0xc1, 0}, {0xc1, 2}};
enum { OK = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7 };
static int is_cut(void) { return getenv("FAKE_NVML_CUT") != 0; }
R nvmlInitWithFlags(unsigned f) { return OK; }
R nvmlInit_v2(void) { return OK; }
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
    unsigned room = *n, found = 0; int card; unsigned pid;
    FILE *f = fopen(getenv("FAKE_NVML_HOLDERS"), "r");
    while (f && fscanf(f, "%d %u", &card, &pid) == 2)
        if (card == (d->bus == 0x18 ? 0 : d->bus == 0x81 ? 1 : 1200 + d->instance)) {
            if (found < room) { memset(&p[found], 0, sizeof *p); p[found].pid = pid; p[found].used = 1 << 20; }
            found++;
        }
    if (f) fclose(f);
    *n = found;
    return found > room ? TOO_SMALL : OK;
}
