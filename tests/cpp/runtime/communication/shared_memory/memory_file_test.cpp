#include "runtime/communication/shared_memory/memory_file.h"

#include <unistd.h>

#include <gtest/gtest.h>
#include <sys/wait.h>

namespace joinsum::runtime::communication::shared_memory {
namespace {

TEST(MemoryFile, IsTheSameMemoryInAnotherProcess) {
  const MemoryFile file = MemoryFile::create(2 * kMappingStep);
  ASSERT_TRUE(file.valid());
  const Mapping own(file, kMappingStep, kMappingStep);
  ASSERT_TRUE(own.valid());
  const int64_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) {
    const Mapping mapped(MemoryFile::open(parent, file.number()), kMappingStep, kMappingStep);
    if (mapped.valid()) mapped.start()[5] = 'x';
    _exit(mapped.valid() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(own.start()[5], 'x');
  EXPECT_EQ(own.start()[6], 0);
}

TEST(MemoryFile, AMappingOutlivesTheFile) {
  MemoryFile file = MemoryFile::create(kMappingStep);
  const Mapping first(file, 0, kMappingStep);
  const Mapping second(file, 0, kMappingStep);
  file = MemoryFile();
  first.start()[0] = 'x';
  EXPECT_EQ(second.start()[0], 'x');
}

TEST(MemoryFile, AForkedChildDoesNotHaveTheMappingAndMayDestroyIt) {
  const MemoryFile file = MemoryFile::create(kMappingStep);
  auto mapping = std::make_unique<Mapping>(file, 0, kMappingStep);
  char* const start = mapping->start();
  const pid_t child = fork();
  if (child == 0) {
    // Something else of the child's is there now, which must stay.
    const Mapping other = Mapping(file, 0, kMappingStep);
    mapping.reset();
    other.start()[0] = 'y';
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(start[0], 'y');
}

TEST(MemoryFile, WhatCannotBeOpenedIsInvalid) {
  EXPECT_FALSE(MemoryFile::open(getpid(), 1 << 20).valid());
  EXPECT_FALSE(MemoryFile::open(int64_t{1} << 40, 3).valid());
  EXPECT_FALSE(Mapping(MemoryFile(), 0, kMappingStep).valid());
}

}  // namespace
}  // namespace joinsum::runtime::communication::shared_memory
