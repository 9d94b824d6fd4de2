// What the emulated driver and compiled programs know of each other.
#pragma once

// Exported by the emulated driver (threads.cc).
struct EmulatedIndex {
  struct Three {
    unsigned x, y, z;
  };
  Three thread, block, block_dim, grid_dim;
};
extern "C" EmulatedIndex tilewise_emulated_index;
extern "C" void tilewise_emulated_barrier();
extern "C" float tilewise_emulated_from_f16(unsigned short bits);
extern "C" unsigned short tilewise_emulated_to_f16(float value);

// What a module's functions are found by.
struct EmulatedEntry {
  const char* name;
  unsigned long parameter_bytes;
  void (*call)(const void* parameters);
};
