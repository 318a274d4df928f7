/* A driver's library for tests: two cards, listed against the order of the bus; who holds memory on them comes
 * from a file that FAKE_NVML_HOLDERS names ("<card> <pid>" a line, cards by bus order). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef int R;
typedef struct dev { int bus; } *D;
static struct dev cards[2] = {{0x81}, {0x18}};
enum { OK = 0, NOT_SUPPORTED = 3, TOO_SMALL = 7 };
R nvmlInitWithFlags(unsigned f) { return OK; }
R nvmlInit_v2(void) { return OK; }
R nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(R r) { return r == OK ? "Success" : "Not Supported"; }
R nvmlSystemGetDriverVersion(char *b, unsigned l) { snprintf(b, l, "570.86.15"); return OK; }
R nvmlDeviceGetCount_v2(unsigned *c) { *c = 2; return OK; }
R nvmlDeviceGetHandleByIndex_v2(unsigned i, D *d) { *d = &cards[i]; return OK; }
R nvmlDeviceGetName(D d, char *b, unsigned l) { snprintf(b, l, d->bus == 0x18 ? "NVIDIA L40S" : "NVIDIA GB10"); return OK; }
R nvmlDeviceGetUUID(D d, char *b, unsigned l) { snprintf(b, l, "GPU-%02x", d->bus); return OK; }
typedef struct { unsigned long long total, free, used; } Mem;
R nvmlDeviceGetMemoryInfo(D d, Mem *m) {
    if (d->bus != 0x18) return NOT_SUPPORTED;
    m->total = 48305799168ULL; m->used = 1ULL << 30; m->free = m->total - m->used;
    return OK;
}
typedef struct { char l[16]; unsigned domain, bus, device, pci, sub; char b[32]; } Pci;
R nvmlDeviceGetPciInfo_v3(D d, Pci *p) {
    memset(p, 0, sizeof *p); p->bus = d->bus; snprintf(p->b, 32, "00000000:%02X:00.0", d->bus); return OK;
}
R nvmlDeviceGetTemperature(D d, int s, unsigned *t) { *t = 55; return OK; }
R nvmlDeviceGetPowerUsage(D d, unsigned *p) { *p = 412000; return OK; }
typedef struct { unsigned pid; unsigned long long used; unsigned gi, ci; } Proc;
R nvmlDeviceGetComputeRunningProcesses_v3(D d, unsigned *n, Proc *p) {
    unsigned room = *n, found = 0; int card; unsigned pid;
    FILE *f = fopen(getenv("FAKE_NVML_HOLDERS"), "r");
    while (f && fscanf(f, "%d %u", &card, &pid) == 2)
        if (card == (d->bus == 0x18 ? 0 : 1)) {
            if (found < room) { memset(&p[found], 0, sizeof *p); p[found].pid = pid; p[found].used = 1 << 20; }
            found++;
        }
    if (f) fclose(f);
    *n = found;
    return found > room ? TOO_SMALL : OK;
}
