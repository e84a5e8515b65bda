// Replaces the elements with data-live by those of the same page, loaded again every five seconds.
'use strict';
(() => {
	const button = document.getElementById('pause'), status = document.getElementById('updates');
	const live = () => [...document.querySelectorAll('[data-live]')];
	if (!live().length) return;
	let paused = false, loading = false;
	button.hidden = false;
	button.addEventListener('click', () => {
		paused = !paused;
		button.textContent = paused ? 'Continue updates' : 'Pause updates';
	});
	// An element stays while somebody works with it.
	const inUse = element => {
		const selection = getSelection();
		return element.contains(document.activeElement) ||
			selection && !selection.isCollapsed && selection.containsNode(element, true);
	};
	async function update() {
		if (paused || loading || document.hidden) return;
		loading = true;
		try {
			const answer = await fetch(location.href, {cache: 'no-store', redirect: 'manual'});
			if (!answer.ok) throw new Error(answer.status);
			const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
			for (const element of live()) {
				const fresh = page.getElementById(element.id);
				if (!fresh || inUse(element)) continue;
				const scrolled = [...element.querySelectorAll('.scroll')].map(e => e.scrollLeft);
				element.replaceWith(document.adoptNode(fresh));
				fresh.querySelectorAll('.scroll').forEach((e, i) => { e.scrollLeft = scrolled[i] || 0; });
			}
			document.getElementById('as-of').replaceWith(document.adoptNode(page.getElementById('as-of')));
			if (status.textContent) status.textContent = '';
		} catch {
			const text = 'The page could not be updated. Reload it, or log in again.';
			if (status.textContent != text) status.textContent = text;
		}
		loading = false;
	}
	setInterval(update, 5000);
	document.addEventListener('visibilitychange', update);
})();
