#include "runtime/communication/shared_memory/ring.h"

#include <algorithm>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace joinsum::runtime::communication::shared_memory {
namespace {

struct Ring {
  explicit Ring(int64_t capacity)
      : bytes(capacity), writer(counts, bytes.data(), capacity), reader(counts, bytes.data(), capacity) {}
  RingCounts counts;
  std::vector<char> bytes;
  RingWriter writer;
  RingReader reader;
};

std::string text_of(int64_t size, int64_t first) {
  std::string text(size, 0);
  for (int64_t i = 0; i < size; ++i) text[i] = static_cast<char>(first + 7 * i);
  return text;
}

TEST(Ring, ShowsWhatIsWrittenOnceItIsPublished) {
  Ring ring(4 * kLine);
  EXPECT_EQ(ring.writer.write("abc", 3), 3);
  EXPECT_EQ(ring.reader.available(1), 0);
  EXPECT_TRUE(ring.writer.publish());
  EXPECT_FALSE(ring.writer.publish());
  EXPECT_EQ(ring.reader.available(1), kLine);
  std::string out(3, 0);
  EXPECT_EQ(ring.reader.read(out.data(), 3), 3);
  EXPECT_EQ(out, "abc");
}

TEST(Ring, TakesAsMuchAsThereIsRoomFor) {
  Ring ring(2 * kLine);
  const std::string text = text_of(3 * kLine, 0);
  EXPECT_EQ(ring.writer.write(text.data(), 3 * kLine), 2 * kLine);
  EXPECT_EQ(ring.writer.write(text.data(), 1), 0);
  ring.writer.publish();
  std::string out(kLine, 0);
  EXPECT_EQ(ring.reader.read(out.data(), kLine), kLine);
  EXPECT_EQ(ring.writer.room(1), 0);
  EXPECT_TRUE(ring.reader.publish());
  EXPECT_EQ(ring.writer.room(1), kLine);
  EXPECT_EQ(ring.writer.room(0), kLine);
}

TEST(Ring, NothingWrittenTakesNoRoom) {
  Ring ring(kLine);
  EXPECT_EQ(ring.writer.write(nullptr, 0), 0);
  EXPECT_FALSE(ring.writer.publish());
}

/// Writes messages of these sizes on one thread and reads them on another.
void expect_delivery(int64_t capacity, const std::vector<int64_t>& sizes) {
  Ring ring(capacity);
  std::thread other([&] {
    for (size_t i = 0; i < sizes.size(); ++i) {
      const std::string text = text_of(sizes[i], static_cast<int64_t>(i));
      for (int64_t at = 0; at < sizes[i];) {
        const int64_t piece = std::min(sizes[i] - at, 2 * kLine);
        at += ring.writer.write(text.data() + at, piece);
        if (!ring.writer.publish()) std::this_thread::yield();
      }
    }
  });
  for (size_t i = 0; i < sizes.size(); ++i) {
    std::string out(sizes[i], 0);
    for (int64_t at = 0; at < sizes[i];) {
      at += ring.reader.read(out.data() + at, sizes[i] - at);
      if (!ring.reader.publish()) std::this_thread::yield();
    }
    ASSERT_EQ(out, text_of(sizes[i], static_cast<int64_t>(i))) << i;
  }
  other.join();
}

TEST(Ring, WrapsAround) { expect_delivery(5 * kLine, std::vector<int64_t>(100, 3 * kLine)); }

TEST(Ring, PassesMessagesThatAreLargerThanItself) { expect_delivery(4 * kLine, {100'000, 1, 99'999}); }

TEST(Ring, PassesMessagesOfAnySize) {
  std::mt19937 random(0);
  std::vector<int64_t> sizes{0, 1, kLine - 1, kLine, kLine + 1};
  for (int i = 0; i < 2000; ++i) sizes.push_back(random() % 3000);
  expect_delivery(32 * kLine, sizes);
}

}  // namespace
}  // namespace joinsum::runtime::communication::shared_memory
