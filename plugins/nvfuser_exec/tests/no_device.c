/* In the place of the CUDA runtime, where there is no driver: one device that can do nothing.

   nvFuser checks the results of a definition by evaluating it with ATen, on the tensors that it is given, and asks for the properties of
   the current device before it starts.  With these answers it evaluates on the CPU.  Loaded by LD_PRELOAD, for tests alone. */
#include <string.h>

enum { PROPERTIES = 1032, NAME = 256, WARP = 308, THREADS_PER_BLOCK = 320, MAJOR = 360, MINOR = 364 }; /* of CUDA 12's cudaDeviceProp */

int cudaGetDeviceCount(int *count) { *count = 1; return 0; }
int cudaGetDevice(int *device) { *device = 0; return 0; }
int cudaSetDevice(int device) { return device; }
int cudaDeviceSynchronize(void) { return 0; }
int cudaGetLastError(void) { return 0; }
int cudaPeekAtLastError(void) { return 0; }

static void put(char *properties, int at, int value) { memcpy(properties + at, &value, sizeof value); }

int cudaGetDeviceProperties_v2(char *properties, int device)
{
    for (int at = NAME; at + 4 <= PROPERTIES; at += 4)
        put(properties, at, 2048); /* enough of everything */
    memset(properties, 0, NAME);
    strcpy(properties, "no device");
    put(properties, WARP, 32);
    put(properties, THREADS_PER_BLOCK, 1024);
    put(properties, MAJOR, 9);
    put(properties, MINOR, 0);
    return device;
}
