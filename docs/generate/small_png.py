"""Screenshots with a palette: text and flat colours need no more than 256 of them."""

import base64
import struct
import zlib

import numpy as np
from numpy.typing import NDArray
from playwright.sync_api import Browser

_COLOURS = 256
_ALIKE_BITS = 4
"""Lower bits of a channel in which colours that look alike may differ."""
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
# The browser reads its own screenshots: no library for pictures is needed.
_PIXELS = """async png => {
  const bytes = Uint8Array.from(atob(png), each => each.charCodeAt(0));
  const picture = await createImageBitmap(new Blob([bytes]));
  const canvas = new OffscreenCanvas(picture.width, picture.height);
  const context = canvas.getContext('2d');
  context.drawImage(picture, 0, 0);
  const data = context.getImageData(0, 0, picture.width, picture.height).data;
  let text = '';
  for (let at = 0; at < data.length; at += 32768)
    text += String.fromCharCode(...data.subarray(at, at + 32768));
  return [picture.width, picture.height, btoa(text)];
}"""


def small_png(browser: Browser, png: bytes) -> bytes:
    """The picture with 256 colours that are frequent in it, all others as the nearest of them."""
    page = browser.new_page()
    width, height, data = page.evaluate(_PIXELS, base64.b64encode(png).decode())
    page.close()
    pixels = np.frombuffer(base64.b64decode(data), np.uint8).reshape(-1, 4)[:, :3]
    palette, indices = _with_palette(pixels)
    # A byte before each row says that it is stored as it is.
    rows = np.concatenate([np.zeros((height, 1), np.uint8), indices.reshape(height, width)], axis=1)
    return _SIGNATURE + b"".join(
        (
            _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            _chunk(b"PLTE", palette.tobytes()),
            _chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)),
            _chunk(b"IEND", b""),
        )
    )


def _with_palette(pixels: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Colours [256, 3] at most, and which of them each pixel has."""
    colours, which, counts = np.unique(pixels, axis=0, return_inverse=True, return_counts=True)
    by_count = np.argsort(-counts)
    # One of those that look alike, so that rare colours have a place, too.
    _, first = np.unique(colours[by_count] >> _ALIKE_BITS, axis=0, return_index=True)
    palette = colours[by_count[np.sort(first)[:_COLOURS]]]
    distances = np.abs(colours[:, None, :].astype(np.int16) - palette[None].astype(np.int16))
    nearest = distances.sum(axis=2).argmin(axis=1).astype(np.uint8)
    return palette, nearest[which.reshape(-1)]


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
