(function () {
  var form = document.getElementById('work');
  if (!window.Worker || !window.Blob) return;

  // Finds a number whose digits, after the challenge of 64 characters, have a SHA-256 (FIPS 180-4)
  // that begins with so many zero bits.
  function search() {
    var k = [], first = [], isPrime = {};
    for (var c = 2, n = 0; n < 64; c++) {
      if (isPrime[c] === false) continue;
      for (var m = c * c; m < 320; m += c) isPrime[m] = false;
      var root = Math.pow(c, 1 / 2), cube = Math.pow(c, 1 / 3);
      if (n < 8) first[n] = ((root - Math.floor(root)) * 4294967296) | 0;
      k[n++] = ((cube - Math.floor(cube)) * 4294967296) | 0;
    }
    var w = new Int32Array(64);
    function block(h) {
      for (var i = 16; i < 64; i++) {
        var x = w[i - 15], y = w[i - 2];
        w[i] = (w[i - 16] + w[i - 7] + ((x >>> 7 | x << 25) ^ (x >>> 18 | x << 14) ^ x >>> 3) +
          ((y >>> 17 | y << 15) ^ (y >>> 19 | y << 13) ^ y >>> 10)) | 0;
      }
      var a = h[0], b = h[1], c = h[2], d = h[3], e = h[4], f = h[5], g = h[6], l = h[7];
      for (i = 0; i < 64; i++) {
        var t = (l + ((e >>> 6 | e << 26) ^ (e >>> 11 | e << 21) ^ (e >>> 25 | e << 7)) + (e & f ^ ~e & g) + k[i] + w[i]) | 0;
        var u = (((a >>> 2 | a << 30) ^ (a >>> 13 | a << 19) ^ (a >>> 22 | a << 10)) + (a & b ^ a & c ^ b & c)) | 0;
        l = g; g = f; f = e; e = (d + t) | 0; d = c; c = b; b = a; a = (t + u) | 0;
      }
      return [h[0] + a | 0, h[1] + b | 0, h[2] + c | 0, h[3] + d | 0, h[4] + e | 0, h[5] + f | 0, h[6] + g | 0, h[7] + l | 0];
    }
    onmessage = function (message) {
      var challenge = message.data.challenge, bits = message.data.bits, i;
      for (i = 0; i < 16; i++) w[i] = 0;
      for (i = 0; i < 64; i++) w[i >> 2] |= challenge.charCodeAt(i) << (24 - 8 * (i & 3));
      var middle = block(first);
      for (var number = 0; ; number++) {
        var text = String(number);
        for (i = 0; i < 16; i++) w[i] = 0;
        for (i = 0; i < text.length; i++) w[i >> 2] |= text.charCodeAt(i) << (24 - 8 * (i & 3));
        w[i >> 2] |= 128 << (24 - 8 * (i & 3));
        w[15] = 8 * (64 + text.length);
        if (block(middle)[0] >>> (32 - bits) === 0) {
          postMessage(text);
          return;
        }
      }
    };
  }

  var source = URL.createObjectURL(new Blob(['(' + search + ')()'], {type: 'text/javascript'}));
  var worker = new Worker(source);
  worker.onmessage = function (message) {
    form.elements.answer.value = message.data;
    form.submit();
  };
  worker.postMessage({challenge: form.elements.challenge.value, bits: Number(form.getAttribute('data-bits'))});
  form.hidden = false;
})();
